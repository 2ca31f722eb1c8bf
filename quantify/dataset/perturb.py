"""A declared transform and a case in, the changed copy out; what it is depends on seed, transform and case alone."""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Callable
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING

from quantify.dataset.noise_spec import Transform
from quantify.dataset.suite import Case, Suite, Value, written
from quantify.errors import InputError
from quantify.properties.yaml import listed, suggest

if TYPE_CHECKING:
    from PIL.Image import Image

BITS = 53
"""Of a uniform draw."""
NORMAL = NormalDist()


def draws(transform: Transform, case: Case, what: str = "") -> random.Random:
    """The random numbers of one case (and feature): they depend on the seed, the transform and the case alone."""
    text = repr((transform.seed, transform.name, case.id, what))
    return random.Random(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))


def check(transform: Transform, suite: Suite) -> None:
    """Refuse a transform that is not about such cases.

    Raises:
        InputError: Images where there are features or the reverse, a feature that the suite does not have, a value to
            be swapped that no case has.
    """
    where = f"transform {transform.name!r}"
    if transform.is_image != suite.images:
        kind, cases = ("an image", "features") if transform.is_image else ("features", "images")
        raise InputError(f"{where} changes {kind}, and the cases of {suite.path} are {cases}", "give another suite")
    named = [*transform.scale, *transform.swaps]
    known = names(suite) if named else ()
    for name in named:
        if name not in known:
            raise InputError(
                f"{where}: the cases have no feature {name!r}{suggest(name, known)}", f"they have {listed(known, 20)}"
            )
    for name, swaps in transform.swaps.items():
        held = {_text(case.features[known.index(name)]) for case in suite.cases}
        if not held & set(swaps):
            raise InputError(
                f"{where}: no case has a {name} of {listed(swaps)}", f"their values are {listed(sorted(held), 20)}"
            )


def names(suite: Suite) -> tuple[str, ...]:
    """Names of the features; of lists, their places."""
    return suite.features or tuple(str(place) for place in range(len(suite.cases[0].features)))


def features(transform: Transform, suite: Suite, case: Case) -> tuple[Value, ...]:
    """The features of a changed copy; a missing value stays missing.

    Raises:
        InputError: Noise on text.
    """
    found = list(case.features)
    known = names(suite)
    for name, scale in transform.scale.items():
        place = known.index(name)
        value = found[place]
        if isinstance(value, str | bool):
            raise InputError(
                f"{suite.where(case)}: {name} is {value!r}, and numeric noise moves numbers", "use categorical_swap"
            )
        if value is not None:
            found[place] = Fraction(value) + scale * _unit(transform, case, name)
    for name, swaps in transform.swaps.items():
        place = known.index(name)
        found[place] = swaps.get(_text(found[place]), found[place])
    return tuple(found)


def _text(value: Value) -> str:
    return written(value)


def _unit(transform: Transform, case: Case, name: str) -> Fraction:
    """A draw from −1 to 1, or from the standard normal distribution."""
    # The middle of one of 2^53 equal parts of (0, 1): never 0 or 1.
    share = Fraction(2 * draws(transform, case, name).getrandbits(BITS) + 1, 1 << (BITS + 1))
    if transform.distribution == "uniform":
        return 2 * share - 1
    near = max(min(float(share), 1 - 2.0**-BITS), 2.0**-BITS)
    return Fraction(NORMAL.inv_cdf(near))


# --- images ----------------------------------------------------------------------------------------------------------
def image(transform: Transform, case: Case, original: Image) -> Image:
    """The changed copy of an image, of the same size and mode."""
    change: dict[str, Callable[[Transform, Case, Image], Image]] = {
        "blur": _blurred,
        "brightness": _brightened,
        "occlusion": _occluded,
        "jpeg": _compressed,
    }
    return change[transform.kind](transform, case, original)


def _blurred(transform: Transform, case: Case, original: Image) -> Image:
    from PIL import ImageFilter

    return original.filter(ImageFilter.GaussianBlur(float(transform.amount)))


def _brightened(transform: Transform, case: Case, original: Image) -> Image:
    from PIL import ImageEnhance

    return ImageEnhance.Brightness(original).enhance(float(transform.amount))


def _occluded(transform: Transform, case: Case, original: Image) -> Image:
    """A grey square at a place of its own in each image, wholly inside where the image is large enough."""
    from PIL import ImageDraw

    side = int(transform.amount)
    rng = draws(transform, case)
    left = rng.randint(0, max(0, original.width - side))
    top = rng.randint(0, max(0, original.height - side))
    changed = original.copy()
    grey = transform.value
    ImageDraw.Draw(changed).rectangle(
        (left, top, left + side - 1, top + side - 1), fill=grey if changed.mode == "L" else (grey, grey, grey)
    )
    return changed


def _compressed(transform: Transform, case: Case, original: Image) -> Image:
    from PIL import Image

    buffer = io.BytesIO()
    original.save(buffer, "JPEG", quality=int(transform.amount))
    with Image.open(io.BytesIO(buffer.getvalue())) as file:
        return file.convert(original.mode)
