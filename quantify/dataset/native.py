"""The compiled module for what looks at data: its functions, and NumPy arrays as the memory that they work on."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.errors import MissingToolError

TYPES = {
    "int8_t": np.int8,
    "uint8_t": np.uint8,
    "int16_t": np.int16,
    "int32_t": np.int32,
    "uint32_t": np.uint32,
    "int64_t": np.int64,
    "uint64_t": np.uint64,
    "float": np.float32,
    "double": np.float64,
}


@cache
def _module() -> Any:
    try:
        from quantify.engines import _native
    except ImportError:
        raise MissingToolError(
            "the compiled part of quantify is not there", "install quantify again, or run: python native/build_ffi.py"
        ) from None
    return _native


def lib() -> Any:
    """The functions of `native/*.h`; a call lets other threads run.

    Raises:
        MissingToolError: It was not compiled.
    """
    return _module().lib


def ffi() -> Any:
    """Its cffi object: `new`, `gc`, `NULL`, `buffer`."""
    return _module().ffi


def pointer(kind: str, array: NDArray[Any]) -> Any:
    """The memory of an array for one call: `kind` is its C element type, such as "double". The array must outlive it.

    Raises:
        ValueError: Another dtype, or not contiguous in C order: C would read something else.
    """
    if array.dtype != TYPES[kind] or not array.flags.c_contiguous:
        raise ValueError(f"{array.dtype} with strides {array.strides} is no {kind}[]")
    return _module().ffi.from_buffer(f"{kind}[]", array)


def view(kind: str, memory: Any, count: int) -> NDArray[Any]:
    """`count` elements that C owns as an array without a copy; whoever owns them must outlive it."""
    return np.frombuffer(_module().ffi.buffer(memory, count * np.dtype(TYPES[kind]).itemsize), TYPES[kind], count)
