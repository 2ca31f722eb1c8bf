"""The engines that there are and one case in, the engine that will count it and the reason out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quantify.errors import InputError
from quantify.ir.count import Engine, Guarantee
from quantify.ir.network import IntNetwork
from quantify.ir.problem import GridCase, GridProblem

SIMPLEST_FIRST = ("boxes", "enumerate", "bdd")


def refusal(engine: Engine, problem: GridProblem, case: GridCase) -> str | None:
    """Why the engine cannot count the case, or None: first by the kind of model, then by its own `refuses`."""
    kind = "network" if isinstance(problem.structure, IntNetwork) else "tree"
    if kind not in engine.structures:
        return f"it counts on {' and '.join(sorted(engine.structures))}s, and this model is a {kind}"
    return engine.refuses(problem, case)


def choose_engine(grid: GridProblem, case: GridCase, known: Mapping[str, Engine], wanted: str) -> tuple[Engine, str]:
    """The engine that will count the case, and why.

    `auto` takes the exact engine that is cheapest by its own estimate; one that only bounds when no exact one can.

    Raises:
        InputError: The wanted engine, or every engine, refuses the case.
    """
    if wanted != "auto":
        reason = refusal(known[wanted], grid, case)
        if reason is not None:
            raise InputError(f"engine {wanted} cannot count this: {reason}", "use --engine auto")
        return known[wanted], f"{wanted}: chosen by the user"
    automatic = [engine for engine in known.values() if engine.automatic]
    refusals: list[str] = []
    for group in (
        [engine for engine in automatic if engine.guarantee is Guarantee.EXACT],
        [engine for engine in automatic if engine.guarantee is not Guarantee.EXACT],
        # An engine that is too slow to be chosen may still do for a small case that the others refuse.
        [engine for engine in known.values() if not engine.automatic and engine.guarantee is Guarantee.EXACT],
    ):
        offers, reasons = _offers(grid, case, group)
        refusals.extend(reasons)
        if offers:
            return _cheapest(offers, known)
    raise InputError(
        "no exact engine can count this (" + "; ".join(refusals) + ")",
        "try --engine cnf, or --engine sample for a sampled answer",
    )


def second_ways(
    grid: GridProblem, case: GridCase, first: Engine, known: Mapping[str, Engine], seconds: float
) -> list[Engine]:
    """The cheapest other exact engine, if it takes less than `seconds`, and the CBMC path; never the first engine."""
    ways: list[Engine] = []
    others = sorted(
        (engine.estimate(grid, case).seconds, name)
        for name, engine in known.items()
        if name not in ("cnf", first.name)
        and engine.guarantee is Guarantee.EXACT
        and refusal(engine, grid, case) is None
    )
    if others and others[0][0] < seconds:
        ways.append(known[others[0][1]])
    if first.name != "cnf" and refusal(known["cnf"], grid, case) is None:
        ways.append(known["cnf"])
    return ways


def _cheapest(offers: list[tuple[float, str, str]], known: Mapping[str, Engine]) -> tuple[Engine, str]:
    seconds, name, reason = min(offers, key=_preference)
    others = ", ".join(f"{n} ~{s:.2g} s" for s, n, _ in sorted(offers) if n != name)
    return known[name], f"{name}: {reason}, ~{seconds:.2g} s" + (f" ({others})" if others else "")


def _preference(offer: tuple[float, str, str]) -> tuple[float, int]:
    """Cheapest first; below a millisecond all are equal, and the one whose reasoning is simplest is taken."""
    seconds, name, _ = offer
    return max(seconds, 1e-3), SIMPLEST_FIRST.index(name) if name in SIMPLEST_FIRST else len(SIMPLEST_FIRST)


def _offers(
    grid: GridProblem, case: GridCase, candidates: Iterable[Engine]
) -> tuple[list[tuple[float, str, str]], list[str]]:
    """(seconds, name, reason) of the engines that would count the case, and why the others would not."""
    offers, refusals = [], []
    for engine in candidates:
        reason = refusal(engine, grid, case)
        if reason is None:
            estimate = engine.estimate(grid, case)
            offers.append((estimate.seconds, engine.name, estimate.reason))
        else:
            refusals.append(f"{engine.name}: {reason}")
    return offers, refusals
