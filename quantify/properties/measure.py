"""The `measure:` section of a property file in, a Measure with integer weights out.

```yaml
measure: uniform                 # every input counts alike; the default
measure:                         # independent weights per feature value
  product:
    weights:                     # a value → its share, decimals or fractions that sum to 1; unlisted values get 0
      colour: {red: 1/3, green: 2/3}
      smoker: {0: 0.8, 1: 0.15, missing: 0.05}
    fit: data.csv                # relative frequencies in a data file, for the features not under weights
    features: [age, income]      # optional: fit these only; every other feature stays uniform
```
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

from quantify.ir.domain import CategoricalFeature, Domain, Feature, Measure, Number
from quantify.properties.cells import position_of
from quantify.properties.domain import shown
from quantify.properties.fields import Fields, blame, describe, items, rational, text, unknown
from quantify.properties.table import open_table
from quantify.properties.yaml import Mapping, Node, Scalar, fail, listed, suggest

MAX_WEIGHTED_GRID = 2**20
"""A weight is stored for every value."""


def build(node: Node | None, domain: Domain, base: Path) -> Measure:
    """The measure that the section describes (`uniform` without one); relative paths start from `base`.

    Raises:
        InputError: Weights that do not sum to 1, values off the grid, a file that cannot be used.
    """
    if node is None:
        return Measure()
    if isinstance(node, Scalar):
        if node.value != "uniform":
            fail(node, f"the measure {describe(node)} is unknown", "write uniform, or product: {weights: {…}}")
        return Measure()
    outer = Fields(node, "the measure", ("product",))
    fields = Fields(outer.need("product", "write product: {weights: {…}}"), "product", ("weights", "fit", "features"))
    given = _given(fields.get("weights"), domain)
    fitted, source = _fitted(fields, domain, given, base)
    if not given and not fitted:
        fail(node, "a product measure without weights", "add weights: or fit:, or write measure: uniform")
    weights = given | fitted
    names = [feature.name for feature in domain]
    return Measure(
        "product", tuple(weights.get(name) for name in names), "; ".join([*(["given"] if given else []), *source])
    )


def to_integers(shares: list[Fraction]) -> tuple[int, ...]:
    """The smallest integers in the ratio of the shares."""
    common = math.lcm(*(share.denominator for share in shares))
    scaled = [share.numerator * (common // share.denominator) for share in shares]
    divisor = math.gcd(*scaled)
    return tuple(value // divisor for value in scaled)


def _check_size(feature: Feature, node: Node) -> None:
    if feature.size > MAX_WEIGHTED_GRID:
        fail(node, f"{feature.name!r} has {feature.size} values, too many to weigh each", "leave this feature uniform")


def _given(node: Node | None, domain: Domain) -> dict[str, tuple[int, ...]]:
    if node is None:
        return {}
    if not isinstance(node, Mapping):
        fail(node, f"weights must be a mapping, not {describe(node)}", "write {colour: {red: 1/3, green: 2/3}}")
    weights: dict[str, tuple[int, ...]] = {}
    for key, shares in node.items:
        place = domain.index(key.text)
        if place is None:
            unknown(key, "weights", key.text, [feature.name for feature in domain])
        if key.text in weights:
            fail(key, f"the weights of {key.text!r} are there twice", "keep one of them")
        weights[key.text] = _shares(shares, domain.features[place])
    return weights


def _shares(node: Node, feature: Feature) -> tuple[int, ...]:
    if not isinstance(node, Mapping):
        fail(node, f"the weights of {feature.name!r} must be a mapping, not {describe(node)}", "write {value: weight}")
    _check_size(feature, node)
    shares = [Fraction(0)] * feature.size
    seen: set[int] = set()
    for key, weight in node.items:
        share = Fraction(rational(weight, f"the weight of {key.text}"))
        if share < 0:
            fail(weight, f"the weight of {key.text} is negative", "weights are probabilities")
        position = _named_position(key, feature)
        if position in seen:
            fail(key, f"the value {key.text} of {feature.name!r} is there twice", "keep one of them")
        seen.add(position)
        shares[position] = share
    total = sum(shares, Fraction(0))
    if total != 1:
        fail(
            node,
            f"the weights of {feature.name!r} sum to {shown(total)}, not to 1",
            "write exact shares: decimals or fractions such as 1/3",
        )
    return to_integers(shares)


def _named_position(key: Scalar, feature: Feature) -> int:
    """The position that a key of the weights names."""
    if isinstance(feature, CategoricalFeature):
        if key.text in feature.values:
            return feature.values.index(key.text)
        if key.text == "missing" and feature.missing:
            return feature.grid_size
        unknown(key, f"a value of {feature.name!r}", key.text, feature.values)
    if key.text == "missing" and feature.missing:
        return feature.grid_size
    value: Number | None = None
    if isinstance(key.value, bool) and feature.kind == "bool":
        value = int(key.value)
    elif isinstance(key.value, int | Fraction) and not isinstance(key.value, bool):
        value = key.value
    position = None if value is None else feature.position(value)
    if position is None:
        low, high = feature.shown(0), feature.shown(feature.grid_size - 1)
        fail(key, f"{key.text!r} is no value of {feature.name!r}", f"its values lie between {low} and {high}")
    return position


def _fitted(
    fields: Fields, domain: Domain, given: dict[str, tuple[int, ...]], base: Path
) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """Relative frequencies of the features that the file is to tell about, and the file's digest."""
    place, only = fields.get("fit"), fields.get("features")
    if place is None:
        if only is not None:
            fail(only, "features say what to fit, but there is no file", "add fit: data.csv")
        return {}, []
    wanted = [feature for feature in domain if feature.name not in given]
    if only is not None:
        names = [text(entry, "a feature") for entry in items(only, "features")]
        for name, entry in zip(names, items(only, "features"), strict=True):
            if domain.index(name) is None:
                unknown(entry, "features to fit", name, [feature.name for feature in domain])
            if name in given:
                fail(entry, f"{name!r} is under weights already", "remove it from one of the two")
        wanted = [feature for feature in domain if feature.name in names]
    with blame(place):
        table = open_table(base / text(place, "fit"))
        columns = table.names or (tuple(f.name for f in domain) if table.width == len(domain.features) else ())
        rows = table.rows(range(table.height()))
        if not rows:
            fail(place, f"{table.path} has no data rows", "frequencies need data")
    fitted: dict[str, tuple[int, ...]] = {}
    for feature in wanted:
        if feature.name not in columns:
            fail(
                place,
                f"{table.path} has no column {feature.name!r}{suggest(feature.name, columns)}",
                f"its columns are {listed(columns)}; name the features to fit under features:",
            )
        _check_size(feature, place)
        column = columns.index(feature.name)
        counts: Counter[int] = Counter()
        with blame(place):
            for row, cells in enumerate(rows):
                counts[position_of(feature, cells[column], table, row)] += 1
        fitted[feature.name] = to_integers([Fraction(counts[p]) for p in range(feature.size)])
    return fitted, [f"{table.path} sha256:{table.sha256}"]
