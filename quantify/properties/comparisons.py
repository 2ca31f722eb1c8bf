"""Two typed operands and an operator in, a truth value out: numbers by value, labels and categories by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn, cast

from quantify.ir.domain import CategoricalFeature
from quantify.ir.property import BoolExpr, CategoryIn, CompareOp, ScoreValue, Truth
from quantify.properties import terms
from quantify.properties.syntax import ExpressionError
from quantify.properties.values import BOOLEANS, Category, Label, Plain, Rank, Resolver, Value, Vector, Word, type_name
from quantify.properties.yaml import listed, suggest


def compare_pair(resolver: Resolver, op: str, left: Value, right: Value, left_at: int, right_at: int) -> BoolExpr:
    """Left op right; offsets are for messages.

    Raises:
        ExpressionError: The two cannot be compared, or a name is unknown.
    """
    for value, other, at in ((left, right, right_at), (right, left, left_at)):
        if isinstance(value, Label | Rank):
            _only_equality(op, at, "labels have no order", "label == 'a' or label in ('a', 'b')")
            if isinstance(other, Label | Rank):
                same = _same_class(resolver, value, other)
                return same if op == "==" else terms.negation(same)
            return _label(resolver, op == "==", value, [(other, at)])
    if isinstance(left, Category) and isinstance(right, Category):
        _only_equality(op, right_at, "categories have no order", "compare categories with == and !=")
        return _two_categories(resolver, op, left, right)
    for value, other, at in ((left, right, right_at), (right, left, left_at)):
        if isinstance(value, Category):
            name = resolver.scope.feature(value.feature).name
            _only_equality(op, at, f"the values of {name!r} have no order", f"{name} == 'a' or {name} in ('a', 'b')")
            return _category(resolver, op == "==", value, [(other, at)])
    operator = cast(CompareOp, op)
    if op in ("==", "!="):
        for value, other in ((left, right), (right, left)):
            if isinstance(value, Truth) and isinstance(other, BOOLEANS):
                return terms.negation(other) if value.value == (op == "!=") else other
    return terms.compare(operator, resolver.as_number(left, left_at), resolver.as_number(right, right_at))


def membership(resolver: Resolver, op: str, left: Value, right: Value, left_at: int, right_at: int) -> BoolExpr:
    """Left in right, or left not in right; like every comparison, both are false for a missing value.

    Raises:
        ExpressionError: The right side is no written list, or a name is unknown.
    """
    if not isinstance(right, Vector) or not right.values:
        raise ExpressionError(right_at, "a list is needed after in", "write label in ('a', 'b') or label in ('a',)")
    wanted = op == "in"
    entries = [(value, right_at) for value in right.values]
    if isinstance(left, Label | Rank):
        return _label(resolver, wanted, left, entries)
    if isinstance(left, Category):
        return _category(resolver, wanted, left, entries)
    parts = [compare_pair(resolver, "==" if wanted else "!=", left, value, left_at, right_at) for value, _ in entries]
    return terms.any_of(parts) if wanted else terms.all_of(parts)


def _only_equality(op: str, at: int, message: str, hint: str) -> None:
    if op not in ("==", "!="):
        raise ExpressionError(at, f"{message}: {op} has no meaning", f"write {hint}")


def _label(resolver: Resolver, wanted: bool, answer: Label | Rank, entries: Iterable[tuple[Value, int]]) -> BoolExpr:
    classes = resolver.scope.classes
    found: set[int] = set()
    for value, at in entries:
        if isinstance(value, Plain | Word):
            text = value.text
        elif isinstance(value, Truth):
            text = str(value.value)
        else:
            raise ExpressionError(
                at, f"label is compared with a {type_name(value)}", "labels are compared with constants: label == 'a'"
            )
        index = resolver.scope.class_index(text)
        if index is None:
            _unknown(at, f"the model has no label {text!r}", text, classes, "its labels")
        found.add(index)
    if not wanted:
        found = set(range(len(classes))) - found
    return _answer_in(resolver, answer, found)


def _answer_in(resolver: Resolver, answer: Label | Rank, classes: Iterable[int]) -> BoolExpr:
    """The label, or the class with an extreme score, is one of these."""
    scope = resolver.scope
    found = sorted(classes)
    if isinstance(answer, Label) or (answer.which == "highest") == (scope.decision == "argmax"):
        return terms.label_in(found, len(scope.classes))
    others = [index for index in range(scope.scores) if index not in found]
    return terms.any_of(terms.all_of(_beats(answer, own, other) for other in others) for own in found)


def _beats(answer: Rank, own: int, other: int) -> BoolExpr:
    """Score `own` goes before score `other`, the lower index at ties.

    This order is total: an extreme is among some classes just when one of them goes before all the others. Comparisons
    among those classes themselves would only be more to decide.
    """
    beyond: CompareOp = "<" if answer.which == "lowest" else ">"
    op = cast(CompareOp, beyond + "=") if own < other else beyond
    return terms.compare(op, ScoreValue(own), ScoreValue(other))


def _same_class(resolver: Resolver, left: Label | Rank, right: Label | Rank) -> BoolExpr:
    return terms.any_of(
        terms.all_of((_answer_in(resolver, left, (index,)), _answer_in(resolver, right, (index,))))
        for index in range(len(resolver.scope.classes))
    )


def _category(resolver: Resolver, wanted: bool, category: Category, entries: Iterable[tuple[Value, int]]) -> BoolExpr:
    feature = resolver.scope.feature(category.feature)
    assert isinstance(feature, CategoricalFeature)
    positions: set[int] = set()
    for value, at in entries:
        if not isinstance(value, Word | Plain):
            raise ExpressionError(
                at,
                f"{feature.name!r} is categorical and compared with a {type_name(value)}",
                f"compare it with one of its values: {listed(feature.values)}",
            )
        if value.text not in feature.values:
            _unknown(at, f"{feature.name!r} has no value {value.text!r}", value.text, feature.values, "its values")
        position = feature.values.index(value.text)
        if isinstance(value, Plain) and feature.codes[position] != value.value:
            # The name 1 with the code 3: a bare 1 could mean either.
            raise ExpressionError(at, f"{value.text} may be a name or a code of {feature.name!r}", "quote names")
        positions.add(position)
    if not wanted:
        positions = set(range(feature.grid_size)) - positions
    return _one_of(resolver, category.feature, positions)


def _one_of(resolver: Resolver, place: int, positions: set[int]) -> BoolExpr:
    if not positions:
        return terms.FALSE
    feature = resolver.scope.feature(place)
    if len(positions) == feature.size:
        return terms.TRUE
    return CategoryIn(place, tuple(sorted(positions)))


def _two_categories(resolver: Resolver, op: str, left: Category, right: Category) -> BoolExpr:
    """Equal when their values have one name, different when both have values, of different names."""
    first, second = resolver.scope.feature(left.feature), resolver.scope.feature(right.feature)
    assert isinstance(first, CategoricalFeature)
    assert isinstance(second, CategoricalFeature)
    parts = []
    for position, name in enumerate(first.values):
        same = {second.values.index(name)} if name in second.values else set[int]()
        others = same if op == "==" else set(range(second.grid_size)) - same
        parts.append(
            terms.all_of((_one_of(resolver, left.feature, {position}), _one_of(resolver, right.feature, others)))
        )
    return terms.any_of(parts)


def _unknown(at: int, message: str, text: str, known: tuple[str, ...], what: str) -> NoReturn:
    raise ExpressionError(at, f"{message}{suggest(text, known)}", f"{what}: {listed(known, 20)}")
