"""A name and a number of nodes in, the relational predicate over the adjacency matrix out.

Feature i·n + j says whether i is related to j. The properties are those of QuantifyML (Usman, Gopinath, Khurshid,
2021), Table 1, taken from the Alloy examples, with three more; `partialorder` is antisymmetric and transitive there,
not reflexive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from quantify.ir.property import BoolExpr
from quantify.properties.terms import all_of, any_of, implies, is_true, negation

Predicate = Callable[[int], BoolExpr]


def antisymmetric(n: int) -> BoolExpr:
    """No two different nodes are related both ways."""
    return all_of(negation(all_of((is_true(i * n + j), is_true(j * n + i)))) for i in range(n) for j in range(i + 1, n))


def connex(n: int) -> BoolExpr:
    """Any two nodes, a node and itself included, are related one way or the other."""
    return all_of((reflexive(n), semiconnex(n)))


def semiconnex(n: int) -> BoolExpr:
    """Any two different nodes are related one way or the other."""
    return all_of(any_of((is_true(i * n + j), is_true(j * n + i))) for i in range(n) for j in range(i + 1, n))


def reflexive(n: int) -> BoolExpr:
    """Every node is related to itself."""
    return all_of(is_true(i * n + i) for i in range(n))


def irreflexive(n: int) -> BoolExpr:
    """No node is related to itself."""
    return all_of(negation(is_true(i * n + i)) for i in range(n))


def symmetric(n: int) -> BoolExpr:
    """Whatever is related one way is related the other way too."""
    return all_of(implies(is_true(i * n + j), is_true(j * n + i)) for i in range(n) for j in range(n) if i != j)


def transitive(n: int) -> BoolExpr:
    """i → j and j → k give i → k."""
    return all_of(
        any_of((negation(is_true(i * n + j)), negation(is_true(j * n + k)), is_true(i * n + k)))
        for i in range(n)
        for j in range(n)
        for k in range(n)
        if j not in (i, k)
    )


def functional(n: int) -> BoolExpr:
    """Every node is related to at most one node."""
    return all_of(
        negation(all_of((is_true(i * n + j), is_true(i * n + k))))
        for i in range(n)
        for j in range(n)
        for k in range(j + 1, n)
    )


def _both(*parts: Predicate, description: str) -> Predicate:
    def predicate(n: int) -> BoolExpr:
        return all_of(part(n) for part in parts)

    predicate.__doc__ = description
    return predicate


equivalence = _both(reflexive, symmetric, transitive, description="Reflexive, symmetric and transitive.")
nonstrictorder = _both(reflexive, antisymmetric, transitive, description="Reflexive, antisymmetric and transitive.")
partialorder = _both(antisymmetric, transitive, description="Antisymmetric and transitive.")
preorder = _both(reflexive, transitive, description="Reflexive and transitive.")
strictorder = _both(irreflexive, antisymmetric, transitive, description="Irreflexive, antisymmetric and transitive.")
totalorder = _both(connex, antisymmetric, transitive, description="Connex, antisymmetric and transitive.")

LIBRARY: Mapping[str, Predicate] = MappingProxyType(
    {
        "antisymmetric": antisymmetric,
        "connex": connex,
        "equivalence": equivalence,
        "functional": functional,
        "irreflexive": irreflexive,
        "nonstrictorder": nonstrictorder,
        "partialorder": partialorder,
        "preorder": preorder,
        "reflexive": reflexive,
        "semiconnex": semiconnex,
        "strictorder": strictorder,
        "symmetric": symmetric,
        "totalorder": totalorder,
        "transitive": transitive,
    }
)
