"""Image files to the pixel values that a model takes, and back: 8 bits a channel, grey or colour."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from quantify.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

Layout = Literal["hwc", "chw"]
"""Order of the model's inputs: the channels of a pixel together, or one whole channel after the other."""
MOST_PIXELS = 1 << 26


def read(path: Path, columns: int, layout: Layout, where: str) -> tuple[int, ...]:
    """The pixels of an image as model inputs, 0 to 255; grey when that fits the model's columns, else RGB.

    Raises:
        InputError: It cannot be read, or has another number of pixels than the model takes; `where` begins the message.
    """
    return flat(opened(path, columns, where), layout)


def opened(path: Path, columns: int, where: str) -> Image:
    """The decoded image, in the mode ("L" or "RGB") in which its pixels are the model's columns. Raises as `read`."""
    return _opened(path, columns, where).copy()


@lru_cache(maxsize=64)
def _opened(path: Path, columns: int, where: str) -> Image:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as file:
            if file.width * file.height > MOST_PIXELS:
                raise InputError(f"{where}: {path} has {file.width} × {file.height} pixels", "give a smaller image")
            mode = {columns: "L", columns // 3 if columns % 3 == 0 else -1: "RGB"}.get(file.width * file.height)
            if mode is None:
                raise InputError(
                    f"{where}: {path} has {file.width} × {file.height} pixels, and the model takes {columns} inputs",
                    "give images of the model's size: one input a pixel, or three",
                )
            return file.convert(mode)
    except FileNotFoundError:
        raise InputError(f"{where}: there is no image {path}", "paths are relative to the suite") from None
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"{where}: {path} is no image that can be read: {error}", "save it as PNG") from None


def flat(image: Image, layout: Layout) -> tuple[int, ...]:
    """Pixel values in the model's order."""
    if layout == "chw" and image.mode == "RGB":
        return tuple(value for channel in image.split() for value in channel.tobytes())
    return tuple(image.tobytes())
