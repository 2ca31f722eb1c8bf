"""Records to canonical JSON and back; the digest of that text is the record's name."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from quantify.errors import InvalidEvidenceError
from quantify.ir.count import Guarantee
from quantify.ir.digits import exact_ratio, from_ratio
from quantify.ir.record import DataRef, Draws, ModelRef, PropertyRef, Reading, Record

FORMAT = "quantify-record/1"
BATCH = "batch"
"""Key of a body under which a batch names the row that the record finishes."""


def now() -> str:
    """The time as records carry it: UTC, to the microsecond."""
    return datetime.now(UTC).isoformat()


def file_sha256(path: str) -> str:
    """Digest of a file's bytes, read in pieces.

    Raises:
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(record: Record) -> str:
    """SHA-256 of the canonical text: the same content has the same digest, whenever it was made."""
    return hashlib.sha256(canonical(record).encode()).hexdigest()


def row_of(record: Record) -> str | None:
    """The row of a batch that the record finishes, or None."""
    batch = record.body.get(BATCH)
    row = batch.get("row") if isinstance(batch, dict) else None
    return row if isinstance(row, str) else None


def canonical(record: Record) -> str:
    """The record without `created` as JSON of one spelling: sorted keys, no spaces, ASCII."""
    plain = to_dict(record)
    del plain["created"]
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def to_dict(record: Record) -> dict[str, Any]:
    """The record as plain JSON data; fractions are "p/q", what is absent or empty is left out."""
    found: dict[str, Any] = {
        "format": FORMAT,
        "kind": record.kind,
        "created": record.created,
        "status": record.status,
        "tool": dict(record.tool),
        "readings": [_plain(reading) for reading in record.readings],
        "data": [_plain(data) for data in record.data],
        "body": record.body,
    }
    if record.model is not None:
        found["model"] = _plain(record.model)
    if record.property is not None:
        found["property"] = _plain(record.property)
    return found


def from_text(text: str, created: str, where: str) -> Record:
    """The record whose canonical text this is.

    Raises:
        InvalidEvidenceError: It is none, or says what cannot be; `where` begins the message.
    """
    try:
        return from_dict({**json.loads(text), "created": created})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidEvidenceError(
            f"{where} is no record of evidence: {error}", "quantify evidence verify tells which records are damaged"
        ) from None


def from_dict(plain: Mapping[str, Any]) -> Record:
    """The inverse of `to_dict`.

    Raises:
        ValueError, TypeError, KeyError: It is no record.
    """
    if plain["format"] != FORMAT:
        raise ValueError(f"format {plain['format']!r}, not {FORMAT!r}")
    return Record(
        kind=plain["kind"],
        created=plain["created"],
        tool=dict(plain["tool"]),
        readings=tuple(_reading(reading) for reading in plain["readings"]),
        model=ModelRef(**plain["model"]) if "model" in plain else None,
        property=PropertyRef(**plain["property"]) if "property" in plain else None,
        data=tuple(DataRef(**data) for data in plain["data"]),
        status=plain["status"],
        body=dict(plain["body"]),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Guarantee):
        return str(value)
    if isinstance(value, Fraction):
        return exact_ratio(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        fields = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: _plain(item) for field, item in fields if item != field.default}
    return value


def _reading(plain: Mapping[str, Any]) -> Reading:
    found = dict(plain)
    for name in ("lower", "upper", "value", "risk", "epsilon", "delta"):
        if name in found:
            found[name] = from_ratio(found[name])
    found["guarantee"] = Guarantee[found["guarantee"].upper().replace("-", "_")]
    if "draws" in found:
        found["draws"] = tuple(
            Draws(**{**one, "weight": from_ratio(one["weight"])} if "weight" in one else one) for one in found["draws"]
        )
    return Reading(**found)
