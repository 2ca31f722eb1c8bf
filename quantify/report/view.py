"""Evidence to the words and tables of a report, in reading order; the terminal and the page only lay it out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from quantify.ir.count import Count, Guarantee
from quantify.ir.digits import plain
from quantify.ir.evidence import CaseEvidence, Check, CnfEvidence, Evidence, Rate, Witness
from quantify.report.numbers import compact, duration, grouped, percent, percent_range, scientific

Style = Literal["text", "number", "status"]
SMALL = 10**6
"""Integers below this need no scientific form."""
SHOWN_FEATURES = 16
"""Features of a witness that are shown; the JSON has all of them."""
SHOWN_WITNESSES = 20
CELLS = ("tp", "fp", "tn", "fn")

MEANINGS: dict[Guarantee, str] = {
    Guarantee.EXACT: "the number itself, proven",
    Guarantee.BOUNDS: "proven: the number lies between the two ends",
    Guarantee.PROB_EXACT: "the number itself, except with probability δ",
    Guarantee.PAC: "within the factor 1 + ε of the estimate, except with probability δ",
    Guarantee.SAMPLED: "an interval that contains the number with the stated confidence; no proof",
}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headers."""

    title: str
    headers: tuple[str, ...]
    styles: tuple[Style, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class View:
    """A report: a title, facts about what was counted, tables, notes."""

    title: str
    subtitle: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    notes: tuple[str, ...]


def of_evidence(evidence: Evidence) -> View:
    """The report of `quantify count`."""
    kind = str(evidence.property.get("kind", ""))
    tables = [*(_robustness(evidence) if kind == "robustness" else _single(evidence, kind))]
    tables.extend(_checks(evidence.checks))
    tables.extend(_witnesses(evidence))
    notes = list(_meanings(count for case in evidence.cases for count in case.counts.values()))
    if not evidence.complete:
        notes.insert(0, "incomplete: a limit or an interruption cut the run short; the bounds are what was proven")
    title = str(evidence.property.get("name") or "count")
    return View(title, kind, tuple(_facts(evidence)), tuple(tables), tuple(notes))


def of_cnf(evidence: CnfEvidence) -> View:
    """The report of `quantify cnf`."""
    formula = evidence.formula
    known = [name for name in ("path", "variables", "clauses", "projection") if name in formula]
    facts = [*((str(name), _fact(formula[name])) for name in known), ("time", duration(evidence.seconds))]
    row = ("models", *_number(evidence.count, None), *_origin(evidence.count))
    headers = ("count", "number", "scientific", "guarantee", "engine", "time")
    styles: tuple[Style, ...] = ("text", "number", "number", "text", "text", "number")
    tables = [_without_empty(Table("Counts", headers, styles, (row,))), *_checks(evidence.checks)]
    return View("cnf", "model count", tuple(facts), tuple(tables), tuple(_meanings([evidence.count])))


# --- facts ---------------------------------------------------------------------------------------------------------
def _facts(evidence: Evidence) -> Iterator[tuple[str, str]]:
    model, domain = evidence.model, evidence.domain
    parts = [str(model.get("path", "")), f"({model.get('kind', 'model')}"]
    if "leaves" in model:
        parts.append(f"with {_fact(model['leaves'])} leaves")
    parts.append(f"over {_fact(model.get('features', '?'))} inputs)")
    yield "model", " ".join(parts)
    classes = model.get("classes")
    if isinstance(classes, list | tuple):
        shown = ", ".join(map(str, classes[:SHOWN_FEATURES]))
        yield "classes", shown + (f", … ({len(classes)} in all)" if len(classes) > SHOWN_FEATURES else "")
    size = domain.get("size")
    about = f"{_integer(size)} inputs" if isinstance(size, int) else f"{size} inputs"
    source = f" ({domain['source']})" if domain.get("source") else ""
    yield "domain", f"{about}, {domain.get('measure', 'uniform')} measure{source}"
    for name in ("positive", "norm"):
        if evidence.property.get(name):
            yield name, str(evidence.property[name])
    reasons = dict.fromkeys(case.engine_reason for case in evidence.cases if case.engine_reason)
    if len(reasons) == 1:
        yield "engine", next(iter(reasons))
    yield "time", duration(evidence.seconds)


def _fact(value: object) -> str:
    return grouped(value) if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _integer(number: int, longest: int = 45) -> str:
    text = grouped(number, longest)
    return text if abs(number) < SMALL else f"{text} ≈ {scientific(number)}"


# --- one case ------------------------------------------------------------------------------------------------------
def _single(evidence: Evidence, kind: str) -> Iterator[Table]:
    case = evidence.cases[0]
    scale = evidence.scale if evidence.domain.get("measure") == "product" else None
    if kind == "learnability":
        yield from _confusions(case, scale)
    rows = [(n, *_number(c, scale), _share(c, case.total), *_origin(c)) for n, c in case.counts.items()]
    number = "number" if scale is None else "probability"
    headers = ("count", number, "scientific", "of domain", "guarantee", "engine", "time")
    styles: tuple[Style, ...] = ("text", "number", "number", "number", "text", "text", "number")
    yield _without_empty(Table("Counts", headers, styles, tuple(rows)))
    rates = tuple(
        (name.replace("/", " of ", 1) if kind == "classes" else name, *_rate(rate))
        for name, rate in case.metrics.items()
    )
    if rates:
        yield Table("Rates", ("rate", "value", "guarantee"), ("text", "number", "text"), rates)


def _without_empty(table: Table) -> Table:
    """The table without columns that hold nothing."""
    keep = [i for i in range(len(table.headers)) if not table.rows or any(row[i] for row in table.rows)]
    return Table(
        table.title,
        tuple(table.headers[i] for i in keep),
        tuple(table.styles[i] for i in keep),
        tuple(tuple(row[i] for i in keep) for row in table.rows),
    )


def _confusions(case: CaseEvidence, scale: int | None) -> Iterator[Table]:
    prefixes = dict.fromkeys(name[: -len("tp")] for name in case.counts if name == "tp" or name.endswith("/tp"))
    for prefix in prefixes:
        cells = [_number(case.counts[prefix + c], scale)[0] if prefix + c in case.counts else "—" for c in CELLS]
        tp, fp, tn, fn = cells
        label = f" of {prefix[:-1]}" if prefix else ""
        yield Table(
            f"Confusion{label}",
            ("", "truly positive", "truly negative"),
            ("text", "number", "number"),
            (("said positive", tp, fp), ("said negative", fn, tn)),
        )


def _number(count: Count, scale: int | None) -> tuple[str, str]:
    """The number (or both ends) in full, and in scientific form."""
    if scale is not None:
        low, high = Fraction(count.lower, scale), Fraction(count.upper, scale)
        if low == high:
            return (plain(low) if len(plain(low)) <= 24 else scientific(low, 10)), scientific(low) if low else "0"
        return f"{scientific(low, 6, 'down')} to {scientific(high, 6, 'up')}", ""
    if count.lower == count.upper:
        return grouped(count.lower), scientific(count.lower) if count.lower >= SMALL else ""
    best = "" if count.estimate is None else f"about {grouped(count.estimate)}: "
    text = f"{best}{grouped(count.lower)} to {grouped(count.upper)}"
    wide = count.upper >= SMALL
    return text, f"{scientific(count.lower, 4, 'down')} to {scientific(count.upper, 4, 'up')}" if wide else ""


def _share(count: Count, total: int) -> str:
    if total == 0:
        return "—"
    lower, upper = Fraction(min(count.lower, total), total), Fraction(min(count.upper, total), total)
    return percent_range(lower, upper, all_but=total - count.lower)


def _origin(count: Count) -> tuple[str, str, str]:
    """Guarantee with its parameters, engine, time."""
    details = []
    if count.guarantee is Guarantee.PAC and count.epsilon is not None:
        details.append(f"ε = {plain(count.epsilon)}")
    if count.guarantee in (Guarantee.PAC, Guarantee.PROB_EXACT) and count.delta is not None:
        details.append(f"δ = {_small(count.delta)}")
    if count.guarantee is Guarantee.SAMPLED:
        if count.confidence is not None:
            details.append(f"{percent(count.confidence)} confidence")
        if count.samples is not None:
            details.append(f"{count.samples:,} draws")
    if count.seed is not None:
        details.append(f"seed {count.seed}")
    if count.note:
        details.append(count.note)
    guarantee = str(count.guarantee) + (f" ({', '.join(details)})" if details else "")
    return guarantee, count.engine, duration(count.seconds)


def _small(value: Fraction) -> str:
    return plain(value) if value >= Fraction(1, 10**4) and len(plain(value)) <= 8 else scientific(value, 2)


def _rate(rate: Rate | None) -> tuple[str, str]:
    if rate is None:
        return "0/0", "undefined"
    value = percent_range(rate.lower, rate.upper)
    if rate.lower != rate.upper and rate.guarantee in (Guarantee.PAC, Guarantee.SAMPLED) and 0 < rate.value < 1:
        value = f"about {percent(Fraction(rate.value))}: {value}"
    return value, str(rate.guarantee) + (f" (risk at most {_small(rate.risk)})" if rate.risk else "")


# --- robustness ----------------------------------------------------------------------------------------------------
def _robustness(evidence: Evidence) -> Iterator[Table]:
    rows = []
    scale = evidence.scale if evidence.domain.get("measure") == "product" else None
    for case in evidence.cases:
        count = case.counts.get("robust")
        if count is None:
            continue
        guarantee, engine, time = _origin(count)
        rows.append(
            (
                "—" if case.row is None else str(case.row),
                case.label or "—",
                "—" if case.epsilon is None else plain(case.epsilon),
                _ball(case.total, scale),
                _robust(count, scale),
                _share(count, case.total),
                guarantee,
                engine,
                time,
            )
        )
    yield Table(
        "Inputs",
        ("row", "label", "ε", "neighbours", "robust", "share", "guarantee", "engine", "time"),
        ("number", "text", "number", "number", "number", "number", "text", "text", "number"),
        tuple(rows),
    )
    yield _curve(evidence.cases)


def _ball(total: int, scale: int | None) -> str:
    if scale is not None:
        return scientific(Fraction(total, scale))
    return grouped(total) if total < SMALL else scientific(total)


def _robust(count: Count, scale: int | None) -> str:
    if scale is not None:
        return _number(count, scale)[0]
    if count.lower == count.upper:
        return compact(count.lower)
    return f"{compact(count.lower)} to {compact(count.upper)}"


def _curve(cases: tuple[CaseEvidence, ...]) -> Table:
    by_epsilon: dict[Fraction | None, list[Rate]] = {}
    for case in cases:
        rate = case.metrics.get("robustness")
        if rate is not None:
            by_epsilon.setdefault(case.epsilon, []).append(rate)
    rows = []
    for epsilon, rates in by_epsilon.items():
        lowest = min(rates, key=lambda rate: rate.lower)
        rows.append(
            (
                "—" if epsilon is None else plain(epsilon),
                str(len(rates)),
                str(sum(rate.lower == 1 for rate in rates)),
                str(sum(rate.lower != rate.upper for rate in rates)),
                percent_range(lowest.lower, lowest.upper),
            )
        )
    headers = ("ε", "inputs", "robust everywhere", "undecided", "least robust")
    return Table("Summary", headers, ("number",) * 5, tuple(rows))


# --- checks, witnesses, notes --------------------------------------------------------------------------------------
def _checks(checks: tuple[Check, ...]) -> Iterator[Table]:
    if checks:
        rows = tuple((check.status, check.name, check.detail) for check in checks)
        yield Table("Checks", ("status", "check", "detail"), ("status", "text", "text"), rows)


def _witnesses(evidence: Evidence) -> Iterator[Table]:
    found = [(case, witness) for case in evidence.cases for witness in case.witnesses]
    if not found:
        return
    rows = tuple((_whose(case, witness), witness.label, _input(witness)) for case, witness in found)
    left_out = len(rows) - SHOWN_WITNESSES
    title = "Witnesses, each run through the model" + (f" ({left_out} more in the JSON)" if left_out > 0 else "")
    yield Table(title, ("of", "model says", "input"), ("text", "text", "text"), rows[:SHOWN_WITNESSES])


def _whose(case: CaseEvidence, witness: Witness) -> str:
    where = [] if case.row is None else [f"row {case.row}"]
    if case.epsilon is not None:
        where.append(f"ε = {plain(case.epsilon)}")
    return witness.query + (f" ({', '.join(where)})" if where else "")


def _input(witness: Witness) -> str:
    """The input; beside a row, where it differs from that row."""
    values = witness.input
    if witness.changed is None:
        shown = [f"{name} = {_value(value)}" for name, value in values.items()]
    else:
        shown = [f"{name}: {_value(before)} → {_value(values[name])}" for name, before in witness.changed.items()]
    rest = len(shown) - SHOWN_FEATURES
    return ", ".join(shown[:SHOWN_FEATURES]) + (f", … ({rest} more features)" if rest > 0 else "") or "the row itself"


def _value(value: object) -> str:
    return "missing" if value is None else str(value)


def index_note(names: Sequence[str], what: str, option: str) -> str:
    """Why leading columns are none of a table's attributes or features, and how they would be."""
    named = " and ".join(repr(name) if name else "the first column, which has no name," for name in names)
    how = "list it in" if all(names) else "give it a name and list it in"
    return f"{named} numbers the rows, as pandas' index does: no {what}; to have it as one, {how} {option}"


def _meanings(counts: Iterable[Count]) -> Iterator[str]:
    for guarantee in sorted({count.guarantee for count in counts}, reverse=True):
        yield f"{guarantee}: {MEANINGS[guarantee]}"
