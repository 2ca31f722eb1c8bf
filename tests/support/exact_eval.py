"""The text of an expression and a table of inputs in, its truth for each of them out: by Python's own parser and eval.

Numbers become exact fractions by their text, missing values an object that no comparison holds for; the rest of the
property language is Python already.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from drawn_features import Drawn, Meaning
from numpy.typing import NDArray


class Missing:
    """Arithmetic with it is missing, comparisons with it are false, and so is its truth."""

    def _missing(self, *_: object) -> Missing:
        return self

    def _false(self, *_: object) -> bool:
        return False

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __floordiv__ = __mod__ = _missing
    __neg__ = __pos__ = _missing
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _false
    __bool__ = _false
    __hash__ = None


MISSING = Missing()


class Label:
    """The model's answer: equal to whatever reads like it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return self.text == str(other)

    def __str__(self) -> str:
        return self.text

    def __call__(self) -> Label:
        """`highest()` is `highest`."""
        return self

    __hash__ = None


class Scores(list[Fraction]):
    """A network's scores, by index or by name."""

    def __init__(self, scores: Iterable[Fraction], names: tuple[str, ...]) -> None:
        super().__init__(scores)
        self.names = names

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(self.names.index(index) if isinstance(index, str) else index)


def _numbers(values: tuple[Any, ...]) -> list[Any]:
    return list(values[0]) if len(values) == 1 and not isinstance(values[0], Fraction | int | Missing) else list(values)


def _unless_missing(function: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        numbers = _numbers(values)
        return MISSING if any(number is MISSING for number in numbers) else function(numbers)

    return call


FUNCTIONS: dict[str, Any] = {
    "__builtins__": {"bool": bool, "range": range},
    "abs": lambda value: MISSING if value is MISSING else abs(value),
    "min": _unless_missing(min),
    "max": _unless_missing(max),
    "sum": _unless_missing(sum),
    "all": lambda *values: all(map(bool, _numbers(values))),
    "any": lambda *values: any(map(bool, _numbers(values))),
    "count": lambda *values: sum(map(bool, _numbers(values))),
    "implies": lambda a, b: not a or bool(b),
    "is_missing": lambda value: value is MISSING,
    "len": len,
    "fraction_": Fraction,
    "not_in_": lambda value, options: value is not MISSING and not any(value == option for option in options),
    "true": True,
    "false": False,
}


class _Exact(ast.NodeTransformer):
    """Decimals by their text, `not in` false for missing values, `and` and `or` truth values."""

    def __init__(self, source: str) -> None:
        self.source = source

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool | str):
            return node
        text = ast.get_source_segment(self.source, node)
        return ast.Call(ast.Name("fraction_", ast.Load()), [ast.Constant(text)], [])

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.ops[0], ast.NotIn):
            return ast.Call(ast.Name("not_in_", ast.Load()), [node.left, node.comparators[0]], [])
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        return ast.Call(ast.Name("bool", ast.Load()), [node], [])

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return ast.Subscript(self.visit(node.value), node.slice, node.ctx)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        return node  # the bounds of ranges stay integers


def truths(
    text: str,
    features: list[Drawn],
    positions: NDArray[np.int64],
    labels: NDArray[np.str_] | None,
    scores: list[list[Fraction]] | None = None,
    names: tuple[str, ...] = (),
) -> NDArray[np.bool_]:
    """Truth of the expression at each row of `positions` (rows × features), with the model's answer and scores there.

    Rows that agree in what the expression reads are evaluated once.
    """
    parsed = ast.parse(text.strip(), mode="eval")
    code = compile(ast.fix_missing_locations(_Exact(text.strip()).visit(parsed)), "expression", "eval")
    words = {node.id for node in ast.walk(parsed) if isinstance(node, ast.Name)}
    words |= {node.value for node in ast.walk(parsed) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    used = [place for place, feature in enumerate(features) if feature.name in words or "x" in words]
    keys = positions[:, used]
    known = np.zeros(0, np.str_)
    if "label" in words:
        assert labels is not None
        known, number = np.unique(labels, return_inverse=True)
        keys = np.column_stack([keys, number])
    asks_scores = bool(words & {"score", "highest", "lowest"})
    if asks_scores:
        keys = np.column_stack([keys, np.arange(len(keys))])
    rows, inverse = np.unique(keys, axis=0, return_inverse=True)
    values: dict[str, Any] = {}

    def one(row: Iterable[int]) -> bool:
        *places, at = row if asks_scores else (*row, 0)
        *places, last = places if "label" in words else (*places, 0)
        for place, position in zip(used, places, strict=True):
            values[features[place].name] = seen(features[place].meanings[position])
        namespace = {**FUNCTIONS, **values, "feature": values.__getitem__}
        if "x" in words:
            namespace["x"] = [values[feature.name] for feature in features]
        if "label" in words:
            namespace["label"] = Label(str(known[last]))
        if asks_scores:
            assert scores is not None
            own = scores[at]
            extremes = {"highest": names[own.index(max(own))], "lowest": names[own.index(min(own))]}
            namespace |= {"score": Scores(own, names), **{word: Label(name) for word, name in extremes.items()}}
        return bool(eval(code, namespace))  # the expression is one that the tests drew

    return np.array([one(row) for row in rows.tolist()], np.bool_)[inverse.reshape(-1)]


def seen(meaning: Meaning) -> Any:
    """A value as the namespace holds it."""
    return MISSING if meaning is None else meaning
