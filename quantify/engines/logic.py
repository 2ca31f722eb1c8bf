"""The meaning of integer predicates and trees in plain Python: a point, or a box of points, to a truth value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from quantify.ir.predicate import (
    AllOf,
    Always,
    AnyOf,
    CountOf,
    Extreme,
    FloorDiv,
    HasLabel,
    IntExpr,
    Linear,
    Negation,
    Plus,
    Predicate,
    Score,
    Sign,
    Times,
    Within,
    nodes,
)
from quantify.ir.problem import GridTree
from quantify.ir.ranges import Labels, interval, on_box

__all__ = [
    "features_used",
    "holds",
    "interval",
    "label_of",
    "label_sets",
    "on_box",
    "reads_label",
    "restrict",
    "specialise",
    "value",
]


def label_of(tree: GridTree, positions: Sequence[int]) -> int:
    """The class index that the tree gives to a point."""
    node = 0
    while tree.feature[node] >= 0:
        right = tree.low[node] <= positions[tree.feature[node]] < tree.high[node]
        node = tree.right[node] if right else tree.left[node]
    return tree.label[node]


def value(expression: IntExpr, positions: Sequence[int], label: int, scores: Sequence[int] = ()) -> int:
    """The integer that `expression` is at a point whose class index is `label`, the network's scores being `scores`."""
    if isinstance(expression, Linear):
        return expression.constant + sum(c * positions[feature] for feature, c in expression.terms)
    if isinstance(expression, Plus):
        return sum(value(argument, positions, label, scores) for argument in expression.arguments)
    if isinstance(expression, Times):
        left = value(expression.left, positions, label, scores)
        return left * value(expression.right, positions, label, scores)
    if isinstance(expression, FloorDiv):
        return value(expression.argument, positions, label, scores) // expression.divisor
    if isinstance(expression, Extreme):
        choose = min if expression.which == "min" else max
        return choose(value(argument, positions, label, scores) for argument in expression.arguments)
    if isinstance(expression, CountOf):
        return sum(holds(argument, positions, label, scores) for argument in expression.arguments)
    if isinstance(expression, Score):
        return scores[expression.index]
    assert_never(expression)


def holds(predicate: Predicate, positions: Sequence[int], label: int, scores: Sequence[int] = ()) -> bool:
    """Whether `predicate` is true at a point whose class index is `label`, the network's scores being `scores`."""
    if isinstance(predicate, Always):
        return predicate.value
    if isinstance(predicate, Within):
        return predicate.low <= positions[predicate.feature] < predicate.high
    if isinstance(predicate, HasLabel):
        return label in predicate.labels
    if isinstance(predicate, Sign):
        number = value(predicate.argument, positions, label, scores)
        if predicate.op == "<":
            return number < 0
        if predicate.op == "<=":
            return number <= 0
        return (number == 0) == (predicate.op == "==")
    if isinstance(predicate, Negation):
        return not holds(predicate.argument, positions, label, scores)
    if isinstance(predicate, AllOf):
        return all(holds(argument, positions, label, scores) for argument in predicate.arguments)
    if isinstance(predicate, AnyOf):
        return any(holds(argument, positions, label, scores) for argument in predicate.arguments)
    assert_never(predicate)


def features_used(predicate: Predicate) -> tuple[int, ...]:
    """The features whose position `predicate` reads, ascending."""
    found: set[int] = set()
    for node in nodes(predicate):
        if isinstance(node, Within):
            found.add(node.feature)
        elif isinstance(node, Linear):
            found.update(feature for feature, _ in node.terms)
    return tuple(sorted(found))


def reads_label(predicate: Predicate) -> bool:
    """Whether the model's answer occurs in `predicate`."""
    return any(isinstance(node, HasLabel) for node in nodes(predicate))


def label_sets(predicate: Predicate) -> frozenset[tuple[int, ...]]:
    """The sets of labels that `predicate` asks for."""
    return frozenset(node.labels for node in nodes(predicate) if isinstance(node, HasLabel))


def restrict(predicate: Predicate, label: int) -> Predicate:
    """`predicate` for points of class `label`: free of HasLabel, constants folded."""
    return _rebuilt(predicate, None, label)


def specialise(predicate: Predicate, low: Sequence[int], high: Sequence[int], labels: Labels = None) -> Predicate:
    """A predicate equal to `predicate` on the box, with the parts that the box decides folded away.

    It is an `Always` whenever `on_box` decides.
    """
    return _rebuilt(predicate, (low, high), labels)


_Box = tuple[Sequence[int], Sequence[int]]


def _rebuilt(predicate: Predicate, box: _Box | None, labels: Labels) -> Predicate:
    if isinstance(predicate, AllOf | AnyOf):
        return _rebuilt_junction(predicate, box, labels)
    if isinstance(predicate, Negation):
        argument = _rebuilt(predicate.argument, box, labels)
        if isinstance(argument, Always):
            return Always(not argument.value)
        return argument.argument if isinstance(argument, Negation) else Negation(argument)
    if isinstance(predicate, Always):
        return predicate
    if isinstance(predicate, HasLabel):
        answer = on_box(predicate, (), (), labels)
    elif box is not None:
        answer = on_box(predicate, box[0], box[1], labels)
    else:
        answer = None
    if answer is not None:
        return Always(answer)
    if isinstance(predicate, Sign):
        argument_now = _rebuilt_number(predicate.argument, box, labels)
        if isinstance(argument_now, Linear) and not argument_now.terms:
            return Always(holds(Sign(predicate.op, argument_now), (), 0))
        return Sign(predicate.op, argument_now)
    return predicate


def _rebuilt_junction(predicate: AllOf | AnyOf, box: _Box | None, labels: Labels) -> Predicate:
    decisive = isinstance(predicate, AnyOf)
    kept: list[Predicate] = []
    for argument in predicate.arguments:
        part = _rebuilt(argument, box, labels)
        if isinstance(part, Always):
            if part.value == decisive:
                return part
        elif isinstance(part, type(predicate)):
            kept.extend(part.arguments)
        else:
            kept.append(part)
    if not kept:
        return Always(not decisive)
    return kept[0] if len(kept) == 1 else type(predicate)(tuple(kept))


def _rebuilt_number(expression: IntExpr, box: _Box | None, labels: Labels) -> IntExpr:
    if isinstance(expression, Plus):
        parts = [_rebuilt_number(argument, box, labels) for argument in expression.arguments]
        if all(isinstance(part, Linear) and not part.terms for part in parts):
            return Linear((), sum(part.constant for part in parts if isinstance(part, Linear)))
        return Plus(tuple(parts))
    if isinstance(expression, Extreme):
        return Extreme(expression.which, tuple(_rebuilt_number(a, box, labels) for a in expression.arguments))
    if isinstance(expression, Times):
        return Times(_rebuilt_number(expression.left, box, labels), _rebuilt_number(expression.right, box, labels))
    if isinstance(expression, FloorDiv):
        return FloorDiv(_rebuilt_number(expression.argument, box, labels), expression.divisor)
    if isinstance(expression, CountOf):
        arguments = [_rebuilt(argument, box, labels) for argument in expression.arguments]
        sure = sum(isinstance(a, Always) and a.value for a in arguments)
        unsure = tuple(a for a in arguments if not isinstance(a, Always))
        if not unsure:
            return Linear((), sure)
        return CountOf(unsure) if sure == 0 else Plus((CountOf(unsure), Linear((), sure)))
    return expression
