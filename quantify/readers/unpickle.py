"""A pickle or joblib stream to plain data, without running anything that the stream names.

Every global that a saved decision tree needs stands here for a `Maker` that only records its arguments; any other is
refused by name before it is imported. Nothing in the file reaches scikit-learn or NumPy constructors, so a
hostile file can at worst be a wrong description of a tree, which `tree_arrays` then rejects.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray


class UnexpectedGlobal(Exception):
    """The stream names something outside the allow-list; `first` when it is the first global of the stream."""

    def __init__(self, module: str, name: str, first: bool) -> None:
        super().__init__(f"{module}.{name}")
        self.module, self.name, self.first = module, name, first


class Malformed(Exception):
    """The stream is no pickle, or describes something that cannot be right."""


# --- what the stream may describe --------------------------------------------------------------------------------
class Recorded:
    """An object as its state; the state is set once."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def build(self, state: Any) -> None:
        """Take the state over (the opcode BUILD)."""
        if self.state is not None:
            raise Malformed("an object's state is set twice")
        self.state = state


class Estimator(Recorded):
    """A DecisionTreeClassifier: `state` is its attribute dictionary."""


class TreeRecord(Recorded):
    """A sklearn Tree: `arguments` are (n_features, n_classes, n_outputs), `state` its dictionary of arrays."""


class Ignored(Recorded):
    """Something that prediction does not depend on (the state of a random generator)."""


class Dtype(Recorded):
    """A NumPy dtype: `arguments` are (code, align, copy), `state` is what `dtype.__setstate__` takes."""

    SIMPLE: ClassVar[re.Pattern[str]] = re.compile(r"[biufSU][1-9][0-9]{0,5}|[Ob]|O[48]")

    def resolve(self) -> np.dtype[Any]:
        """The dtype, for numbers, text, objects and flat records of numbers.

        Layout of the state: `arraydescr_reduce` in numpy/_core/src/multiarray/descriptor.c:
        (version, byte order, subarray, names, fields, itemsize, alignment, flags).
        """
        code = self.arguments[0] if self.arguments else None
        if not isinstance(code, str):
            raise Malformed("a dtype without a type code")
        order, subarray, names, fields, itemsize = "|", None, None, None, -1
        if self.state is not None:
            if not isinstance(self.state, tuple) or len(self.state) < 6:
                raise Malformed("a dtype with an unknown state")
            order, subarray, names, fields, itemsize = self.state[1:6]
        if subarray is not None or order not in ("<", ">", "|", "="):
            raise Malformed("a dtype of an unexpected kind")
        if names is None:
            if not self.SIMPLE.fullmatch(code):
                raise Malformed(f"an array of dtype {printable(code)}")
            return np.dtype(object) if code.startswith("O") else np.dtype(order + code)
        if not isinstance(names, tuple) or not isinstance(fields, dict) or not isinstance(itemsize, int):
            raise Malformed("a record dtype with an unknown state")
        members = [fields[name] for name in names]
        formats = [member[0].resolve() for member in members]
        if not all(isinstance(name, str) for name in names) or any(f.hasobject or f.names for f in formats):
            raise Malformed("a record dtype with nested or object fields")
        return np.dtype(
            {"names": list(names), "formats": formats, "offsets": [m[1] for m in members], "itemsize": itemsize}
        )


class Array(Recorded):
    """A NumPy array; `value` once it is built."""

    value: NDArray[Any] | None = None

    def build(self, state: Any) -> None:
        super().build(state)
        if not isinstance(state, tuple) or len(state) != 5:
            raise Malformed("an array with an unknown state")
        _, shape, dtype, fortran, data = state
        self.value = filled(dtype, shape, "F" if fortran else "C", data)


class JoblibArray(Array):
    """joblib's NumpyArrayWrapper: its state describes an array whose bytes follow in the file."""

    def build(self, state: Any) -> None:
        Recorded.build(self, state)
        if not isinstance(state, dict):
            raise Malformed("a joblib array with an unknown state")

    def read(self, file: io.BytesIO, nested: Callable[[], Any]) -> None:
        """Take the array's bytes off the file; mirrors `NumpyArrayWrapper.read_array` in joblib/numpy_pickle.py."""
        dtype = self.state.get("dtype")
        if not isinstance(dtype, Dtype):
            raise Malformed("a joblib array without a dtype")
        resolved = dtype.resolve()
        if resolved.hasobject:
            self.value = plain(nested())
            return
        if self.state.get("numpy_array_alignment_bytes") is not None:
            file.read(int.from_bytes(file.read(1), "little"))
        shape = checked_shape(self.state.get("shape"))
        size = math.prod(shape) * resolved.itemsize
        data = file.read(size) if size <= len(file.getbuffer()) else b""
        self.value = filled(dtype, shape, self.state.get("order"), data)


def checked_shape(shape: Any) -> tuple[int, ...]:
    """The shape, when it is one of at most 4 dimensions.

    Raises:
        Malformed: It is not.
    """
    if not isinstance(shape, tuple | list) or len(shape) > 4:
        raise Malformed("an array without a sensible shape")
    sizes = tuple(int(n) for n in shape if isinstance(n, int | np.integer) and n >= 0)
    if len(sizes) != len(shape):
        raise Malformed("an array without a sensible shape")
    return sizes


def filled(dtype: Any, shape: Any, order: Any, data: Any) -> NDArray[Any]:
    """An array from bytes, or from a list for objects; the amount of data must be exact.

    Raises:
        Malformed: It is not, or the parts do not describe an array.
    """
    if not isinstance(dtype, Dtype) or order not in ("C", "F"):
        raise Malformed("an array without dtype or order")
    resolved, sizes = dtype.resolve(), checked_shape(shape)
    count = math.prod(sizes)
    if resolved.hasobject:
        if not isinstance(data, list) or len(data) != count:
            raise Malformed("an array of objects of the wrong length")
        objects = np.empty(count, dtype=object)
        for place, item in enumerate(data):
            objects[place] = item
        return objects.reshape(sizes, order=order)
    if not isinstance(data, bytes | bytearray) or len(data) != count * resolved.itemsize:
        raise Malformed("an array with missing or surplus data")
    if count == 0:
        return np.empty(sizes, dtype=resolved)
    return np.frombuffer(bytes(data), dtype=resolved).reshape(sizes, order=order)


def plain(value: Any) -> Any:
    """The NumPy array behind an `Array`; anything else as it is.

    Raises:
        Malformed: The array was never filled.
    """
    if not isinstance(value, Array):
        return value
    if value.value is None:
        raise Malformed("an array without data")
    return value.value


def described(value: Any) -> str:
    """What sort of thing an unpickled object is, in a word."""
    names = {Array: "NumPy array", JoblibArray: "NumPy array", TreeRecord: "bare Tree", Maker: "class"}
    return names.get(type(value), type(value).__name__)


def printable(text: str) -> str:
    """Text of unknown origin, fit for a terminal."""
    return ascii(text[:80])[1:-1]


# --- the allow-list ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Maker:
    """Stands for one allowed global: `make` turns the arguments of a call into recorded data."""

    name: str
    make: Callable[..., Any]


def _reconstruct(subtype: Any, shape: Any, code: Any) -> Array:
    if not isinstance(subtype, Maker) or subtype.name != "numpy.ndarray":
        raise Malformed("an array of a subclass")
    return Array()


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> Array:
    """`_frombuffer` of numpy/_core/numeric.py."""
    array = Array()
    array.value = filled(dtype, shape, "C" if order == "K" else order, data)
    if order == "K" and axes is not None:
        array.value = array.value.transpose(checked_shape(axes))
    return array


def _scalar(dtype: Any, data: Any) -> Any:
    value = filled(dtype, (1,), "C", data)
    if value.dtype.hasobject or value.dtype.names:
        raise Malformed("a scalar of an unexpected kind")
    return value[0]


def _copyreg(kind: Any, base: Any, state: Any) -> Any:
    if not isinstance(kind, Maker) or not isinstance(base, Maker) or base.name != "builtins.object":
        raise Malformed("an object of an unexpected kind")
    return kind.make()


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """How protocols 0 to 2 write bytes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise Malformed("bytes in an unexpected encoding")
    return text.encode("latin1")


def _nothing(*arguments: Any) -> Any:
    raise Malformed("an object of an unexpected kind")


def _allow_list() -> Mapping[tuple[str, str], Maker]:
    makers: dict[tuple[str, str], Maker] = {
        ("sklearn.tree._classes", "DecisionTreeClassifier"): Maker("DecisionTreeClassifier", Estimator),
        # Named so by scikit-learn before 0.22: read far enough to say which version wrote it.
        ("sklearn.tree.tree", "DecisionTreeClassifier"): Maker("DecisionTreeClassifier", Estimator),
        ("sklearn.tree._tree", "Tree"): Maker("Tree", TreeRecord),
        ("numpy", "ndarray"): Maker("numpy.ndarray", _nothing),
        ("numpy", "dtype"): Maker("numpy.dtype", Dtype),
        ("joblib.numpy_pickle", "NumpyArrayWrapper"): Maker("NumpyArrayWrapper", JoblibArray),
        ("_codecs", "encode"): Maker("encode", _encode),
    }
    for core in ("numpy.core", "numpy._core"):
        makers[f"{core}.multiarray", "_reconstruct"] = Maker("_reconstruct", _reconstruct)
        makers[f"{core}.multiarray", "scalar"] = Maker("scalar", _scalar)
        makers[f"{core}.numeric", "_frombuffer"] = Maker("_frombuffer", _frombuffer)
    for module in ("copyreg", "copy_reg"):
        makers[module, "_reconstructor"] = Maker("_reconstructor", _copyreg)
    for module in ("builtins", "__builtin__"):
        makers[module, "object"] = Maker("builtins.object", _nothing)
    for module, name in (
        ("numpy.random._pickle", "__randomstate_ctor"),
        ("numpy.random._pickle", "__bit_generator_ctor"),
        ("numpy.random._mt19937", "MT19937"),
        ("numpy.random", "__RandomState_ctor"),
        ("numpy.random.bit_generator", "SeedSequence"),
        ("numpy.random.bit_generator", "__pyx_unpickle_SeedSequence"),
    ):
        makers[module, name] = Maker(name, Ignored)
    return makers


ALLOWED = _allow_list()


# --- the machine -------------------------------------------------------------------------------------------------
class DataUnpickler(pickle._Unpickler):
    """Python's own pickle machine (the C one has no hooks) with every opcode that calls or sets anything replaced."""

    dispatch: ClassVar[dict[int, Callable[..., None]]] = dict(pickle._Unpickler.dispatch)
    stack: list[Any]
    readline: Callable[[], bytes]

    def __init__(self, file: io.BytesIO, depth: int = 0) -> None:
        super().__init__(file)
        self.file = file
        self.depth = depth
        self.globals = 0

    def find_class(self, module: str, name: str) -> Maker:
        maker = ALLOWED.get((module, name))
        if maker is None:
            raise UnexpectedGlobal(printable(module), printable(name), self.globals == 0 and self.depth == 0)
        self.globals += 1
        return maker

    def get_extension(self, code: int) -> None:
        """Extension codes name globals of whoever registered them: never a tree's."""
        raise UnexpectedGlobal("copyreg", f"extension {code}", self.globals == 0)

    def _call(self, function: Any, arguments: Any) -> None:
        if not isinstance(function, Maker) or not isinstance(arguments, tuple):
            raise Malformed("a call of something that is no function")
        self.stack.append(function.make(*arguments))

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        self._call(self.stack.pop(), arguments)

    def load_obj(self) -> None:
        function, *arguments = self.pop_mark()  # type: ignore[attr-defined]  # undocumented, hence untyped
        self._call(function, tuple(arguments))

    def load_inst(self) -> None:
        module = self.readline()[:-1].decode("ascii")
        name = self.readline()[:-1].decode("ascii")
        arguments = tuple(self.pop_mark())  # type: ignore[attr-defined]  # undocumented, hence untyped
        self._call(self.find_class(module, name), arguments)

    def load_newobj_ex(self) -> None:
        raise Malformed("an object made with keyword arguments")

    def load_build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if not isinstance(target, Recorded):
            raise Malformed("a state for something that has none")
        target.build(state)
        if isinstance(target, JoblibArray):
            target.read(self.file, self._nested)

    def _nested(self) -> Any:
        """joblib writes an array of objects as a pickle within the pickle."""
        if self.depth > 0:
            raise Malformed("pickles nested too deeply")
        return DataUnpickler(self.file, self.depth + 1).load()

    def load_bytearray8(self) -> None:
        size = int.from_bytes(self.read(8), "little")  # type: ignore[attr-defined]  # undocumented, hence untyped
        if size > len(self.file.getbuffer()):
            raise Malformed("a byte array longer than the file")
        self.stack.append(bytearray(self.read(size)))  # type: ignore[attr-defined]

    for _opcode, _method in (
        (pickle.REDUCE, load_reduce),
        (pickle.NEWOBJ, load_reduce),
        (pickle.NEWOBJ_EX, load_newobj_ex),
        (pickle.OBJ, load_obj),
        (pickle.INST, load_inst),
        (pickle.BUILD, load_build),
        (pickle.BYTEARRAY8, load_bytearray8),
    ):
        dispatch[_opcode[0]] = _method
    del _opcode, _method


def unpickle(data: bytes) -> Any:
    """The object a pickle or (uncompressed) joblib stream describes, as plain data and `Recorded` objects.

    Raises:
        UnexpectedGlobal: It names something outside the allow-list; nothing of that was imported or run.
        Malformed: It is no such stream, or ends early.
    """
    try:
        return DataUnpickler(io.BytesIO(data)).load()
    except (UnexpectedGlobal, Malformed):
        raise
    except EOFError:
        raise Malformed("the file ends early") from None
    except RecursionError:
        raise Malformed("objects nested too deeply") from None
    # A broken stream can make the pickle machine raise anything: KeyError, IndexError, TypeError, OverflowError, …
    except Exception as error:
        raise Malformed(f"not a readable pickle ({type(error).__name__}: {printable(str(error))})") from None
