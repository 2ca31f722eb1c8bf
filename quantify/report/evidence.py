"""Records of the evidence store to the words and tables of `quantify evidence list` and `show`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

from quantify.ir.digits import plain
from quantify.ir.record import METRICS, Reading, Record
from quantify.report.numbers import percent, percent_range, scientific
from quantify.report.view import MEANINGS, Table, View

SHORT = 12
"""Characters of a digest that are shown."""
LONGEST = 15
"""Characters of a number that is no share."""


def of_list(records: Sequence[tuple[str, Record]], store: Path) -> View:
    """One line a record, given with its digest."""
    rows = tuple(
        (digest[:SHORT], record.kind, record.created[:19], _subject(record), _summary(record), record.status)
        for digest, record in records
    )
    headers = ("digest", "kind", "recorded (UTC)", "of", "says", "status")
    tables = (
        [Table(f"{len(rows)} record{'' if len(rows) == 1 else 's'}", headers, ("text",) * 5 + ("status",), rows)]
        if rows
        else []
    )
    notes = () if rows else ("nothing is on record: quantify count … --record",)
    return View("evidence", str(store), (), tuple(tables), notes)


def of_record(digest: str, record: Record) -> View:
    """Everything a rule could use of one record."""
    facts = [("digest", digest), ("recorded", record.created), ("status", record.status)]
    if record.model is not None:
        facts.append(("model", f"{record.model.path} ({record.model.kind}, sha256 {record.model.sha256})"))
    if record.property is not None:
        facts.append(("property", f"{record.property.path} (sha256 {record.property.sha256})"))
    facts.extend((data.role, f"{data.path} (sha256 {data.sha256})") for data in record.data)
    facts.append(("tool", ", ".join(f"{name} {value}" for name, value in record.tool.items() if value)))
    rows = tuple(
        (reading.metric, reading.subject, reading.group or "", _between(reading), str(reading.guarantee), _why(reading))
        for reading in record.readings
    )
    headers = ("metric", "of", "group", "between", "guarantee", "note")
    tables = [Table("Rates that rules can name", headers, ("text", "text", "text", "number", "text", "text"), rows)]
    guarantees = dict.fromkeys(reading.guarantee for reading in record.readings)
    notes = tuple(f"{guarantee}: {MEANINGS[guarantee]}" for guarantee in guarantees)
    return View(record.kind, _subject(record), tuple(facts), tuple(tables) if rows else (), notes)


def amount(metric: str, value: Fraction) -> str:
    """A rate for people: in percent where it is a share."""
    if METRICS[metric].is_share:
        return percent(value)
    text = plain(value)
    return text if len(text) <= LONGEST else scientific(value, 5)


def interval(metric: str, lower: Fraction, upper: Fraction) -> str:
    """The ends of a rate for people, rounded outwards."""
    if METRICS[metric].is_share:
        return percent_range(lower, upper)
    if lower == upper:
        return amount(metric, lower)
    return f"{scientific(lower, 5, 'down')} to {scientific(upper, 5, 'up')}"


def _between(reading: Reading) -> str:
    return interval(reading.metric, reading.lower, reading.upper)


def _subject(record: Record) -> str:
    names = [Path(record.model.path).name] if record.model is not None else []
    subjects = dict.fromkeys(reading.subject for reading in record.readings)
    if record.property is not None:
        subjects = {record.property.name: None}
    files = [Path(data.path).name for data in record.data] if not subjects else []
    return ", ".join([*names, *subjects, *files])


def _summary(record: Record) -> str:
    parts = [
        f"{reading.metric}{'' if reading.group is None else f' [{reading.group}]'} {_between(reading)}"
        for reading in record.readings[:2]
    ]
    more = len(record.readings) - len(parts)
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "")


def _why(reading: Reading) -> str:
    return "; ".join(_notes(reading))


def _notes(reading: Reading) -> Iterator[str]:
    if reading.reason is not None:
        yield reading.reason
    if reading.approximate:
        yield "approximate"
    if reading.risk:
        yield f"misses with probability {_probability(reading)}"


def _probability(reading: Reading) -> str:
    return f"{float(reading.risk):.3g}"
