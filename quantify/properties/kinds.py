"""A safety, classes or learnability property and a scope in, its one case with queries and partitions out."""

from __future__ import annotations

from dataclasses import replace

from quantify.ir.domain import Domain
from quantify.ir.problem import Box, Case, Query
from quantify.ir.property import BoolExpr
from quantify.properties import terms
from quantify.properties.expressions import parse
from quantify.properties.fields import Fields, text, unknown
from quantify.properties.scope import Scope
from quantify.properties.yaml import Mapping, Node, Scalar, fail

OUTSIDE = "outside"


def whole(domain: Domain) -> Box:
    """The whole domain as a region."""
    return Box((0,) * len(domain.features), domain.sizes)


def safety(fields: Fields, scope: Scope) -> Case:
    """Queries satisfied and violated, among the inputs that meet `assume`.

    Raises:
        InputError: No `assert`, or an expression that has no meaning here.
    """
    assumed, outside = _assumption(fields, scope)
    claim = parse(fields.need("assert", "write what must hold: assert: \"label == '…'\""), "assert", scope)
    queries = (
        Query("satisfied", terms.all_of((assumed, claim))),
        Query("violated", terms.all_of((assumed, terms.negation(claim)))),
        *outside,
    )
    return _case(scope, queries, (queries,))


def classes(fields: Fields, scope: Scope) -> Case:
    """One query a class, among the inputs that meet `assume`.

    Raises:
        InputError: An expression that has no meaning here.
    """
    assumed, outside = _assumption(fields, scope)
    count = len(scope.classes)
    queries = (
        *(Query(name, terms.all_of((assumed, terms.label_in((i,), count)))) for i, name in enumerate(scope.classes)),
        *outside,
    )
    return _case(scope, queries, (queries,))


def learnability(fields: Fields, scope: Scope) -> tuple[Case, str | None]:
    """Queries tp, fp, tn, fn against the ground truth, and the positive label when one is named.

    With an expression per label and no positive label, the queries are `label/tp` and so on. Per-label expressions
    also give the unreported queries `gap` (no expression holds) and `overlap` (several do).

    Raises:
        InputError: No ground truth, an unknown label, or an expression that has no meaning here.
    """
    assumed, outside = _assumption(fields, scope)
    truths = replace(scope, label_allowed=False)
    node = fields.need("ground_truth", "write ground_truth: transitive, an expression, or {label: expression}")
    positive_node = fields.get("positive")
    positive = None if positive_node is None else _label(positive_node, "positive", scope)
    queries: list[Query] = []
    partitions: list[tuple[Query, ...]] = []
    if not isinstance(node, Mapping):
        if positive is None:
            hint = f"add positive: and one of {', '.join(scope.classes)}"
            fail(node, "which label does the ground truth describe?", hint)
        wanted = {positive: parse(node, "ground_truth", truths)}
    else:
        wanted = _per_label(node, scope, truths)
        completeness = _completeness(list(wanted.values()), assumed)
        queries.extend(completeness)
        partitions.append((*completeness, *outside))
        if positive is not None and positive not in wanted:
            fail(node, f"the positive label {scope.classes[positive]!r} has no expression", "add it, or name another")
        if positive is not None:
            wanted = {positive: wanted[positive]}
    for label, expression in wanted.items():
        prefix = "" if positive is not None else f"{scope.classes[label]}/"
        four = _confusion(prefix, label, expression, assumed, scope)
        queries.extend(four)
        partitions.append((*four, *outside))
    case = _case(scope, (*queries, *outside), tuple(partitions))
    return case, None if positive is None else scope.classes[positive]


def _case(scope: Scope, queries: tuple[Query, ...], partitions: tuple[tuple[Query, ...], ...]) -> Case:
    return Case(whole(scope.domain), queries, tuple(tuple(query.name for query in part) for part in partitions))


def _assumption(fields: Fields, scope: Scope) -> tuple[BoolExpr, tuple[Query, ...]]:
    """What `assume` says (true without one), and the query that completes a partition."""
    node = fields.get("assume")
    if node is None:
        return terms.TRUE, ()
    assumed = parse(node, "assume", scope)
    # A class may itself be called "outside".
    name = OUTSIDE if OUTSIDE not in scope.classes else f"({OUTSIDE})"
    return assumed, (Query(name, terms.negation(assumed), reported=False),)


def _label(node: Node, what: str, scope: Scope) -> int:
    index = scope.class_index(text(node, what))
    if index is None:
        unknown(node, f"{what} must be a label of the model", text(node, what), scope.classes)
    return index


def _per_label(node: Mapping, scope: Scope, truths: Scope) -> dict[int, BoolExpr]:
    expressions: dict[int, BoolExpr] = {}
    for key, value in node.items:
        index = _label(key, "ground_truth", scope)
        if index in expressions:
            fail(key, f"the label {key.text!r} is there twice", "one expression a label")
        expressions[index] = parse(value, f"ground_truth of {key.text}", truths)
    if not expressions:
        fail(node, "the ground truth is empty", "write {label: expression}")
    return expressions


def _completeness(expressions: list[BoolExpr], assumed: BoolExpr) -> tuple[Query, ...]:
    """Inputs where none, several, or exactly one of the expressions holds."""
    held = terms.how_many(expressions)
    return (
        Query("gap", terms.all_of((assumed, terms.negation(terms.any_of(expressions)))), reported=False),
        Query("overlap", terms.all_of((assumed, terms.compare(">=", held, terms.constant(2)))), reported=False),
        Query("unique", terms.all_of((assumed, terms.compare("==", held, terms.constant(1)))), reported=False),
    )


def _confusion(prefix: str, label: int, expression: BoolExpr, assumed: BoolExpr, scope: Scope) -> tuple[Query, ...]:
    count = len(scope.classes)
    said = terms.label_in((label,), count)
    silent = terms.label_in((other for other in range(count) if other != label), count)
    false = terms.negation(expression)
    pairs = (("tp", said, expression), ("fp", said, false), ("tn", silent, false), ("fn", silent, expression))
    return tuple(Query(f"{prefix}{name}", terms.all_of((assumed, answer, real))) for name, answer, real in pairs)


def network_only(fields: Fields, keys: tuple[str, ...]) -> None:
    """Refuse what only networks have.

    Raises:
        InputError: One of `keys` is there.
    """
    for key in keys:
        node = fields.get(key)
        if node is not None:
            place = Scalar(node.file, node.line, None, "")
            fail(place, f"{key!r} is for networks, and this model is a decision tree", f"remove {key}:")
