"""The store keeps what it was given, under its digest, and says so when it cannot."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from quantify.errors import InputError, InvalidEvidenceError
from quantify.evidence import records, store
from quantify.evidence.proportions import proportion
from quantify.evidence.store import Store
from quantify.ir.count import Guarantee
from quantify.ir.record import DataRef, Draws, ModelRef, PropertyRef, Reading, Record

HUGE = Fraction(10**700 + 1, 3 * 10**700)


def record(number: int = 0, **changes: Any) -> Record:
    reading = Reading("violation", "property", "phi", HUGE, HUGE, HUGE, Guarantee.EXACT, support=10**400, problem="p")
    pac = Reading(
        "f1", "property", "phi", Fraction(0), Fraction(1), Fraction(1, 2), Guarantee.PAC, group="yes",
        risk=Fraction(2, 5), epsilon=Fraction(4, 5), delta=Fraction(1, 5), sides=2, reason="vacuous", need="more",
    )  # fmt: skip
    sampled = proportion("accuracy", "property", "phi", Draws(3, 9, unknown=1))
    made = Record(
        kind="count",
        created="2026-01-02T03:04:05+00:00",
        tool={"version": "1"},
        readings=(reading, pac, sampled),
        model=ModelRef("m.pkl", "a" * 64, "tree"),
        property=PropertyRef("phi", "p.yaml", "b" * 64),
        data=(DataRef("inputs", "d.csv", "c" * 64, 7),),
        body={"number": number, "ε": [1.5, None, True, "ü"]},
    )
    return replace(made, **changes)


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "evidence.db"
    with Store(path, create=True) as opened:
        name = opened.add(record())
    with Store(path) as opened:
        (found,), damages = opened.all()
        assert (found.record, found.digest, damages) == (record(), name, ())
        assert opened.find(name[:6]).record == record()


def test_the_digest_is_that_of_the_text_and_nothing_else_names_a_record() -> None:
    text = records.canonical(record())
    assert records.digest(record()) == hashlib.sha256(text.encode()).hexdigest()
    assert records.digest(record(created="2027-01-01T00:00:00+00:00")) == records.digest(record())
    others = [
        record(1), record(kind="run"), record(status="invalid"), record(tool={"version": "2"}), record(readings=()),
        record(model=ModelRef("m.pkl", "d" * 64, "tree")), record(property=PropertyRef("phi", "p.yaml", "d" * 64)),
        record(data=(DataRef("inputs", "d.csv", "d" * 64, 7),)),
    ]  # fmt: skip
    assert len({records.digest(one) for one in [record(), *others]}) == 1 + len(others)
    assert "created" not in json.loads(text)


def test_adding_again_stores_nothing_new(tmp_path: Path) -> None:
    with Store(tmp_path / "e.db", create=True) as opened:
        assert opened.add(record()) == opened.add(record())
        assert len(opened.all()[0]) == 1
        with pytest.raises(InputError, match="not so many"):
            opened.latest("count", 1)


def test_latest_follows_the_order_of_recording_even_when_content_comes_again(tmp_path: Path) -> None:
    with Store(tmp_path / "e.db", create=True) as opened:
        for number, kind in ((1, "run"), (9, "noise"), (2, "run"), (3, "run"), (1, "run")):
            opened.add(record(number, kind=kind, created=f"2026-01-0{number}T00:00:00+00:00"))
        assert [opened.latest("run", back).record.body["number"] for back in range(4)] == [1, 3, 2, 1]
        assert [stored.record.body["number"] for stored in opened.all("run")[0]] == [2, 3, 1]
        assert opened.find("latest~3").record.body["number"] == 9
        for wrong in ("latest~", "latest~x", "latest~5"):
            with pytest.raises(InputError):
                opened.find(wrong)
        with pytest.raises(InputError, match="no kind"):
            opened.latest("gossip")


def test_prefixes_must_name_one_record(tmp_path: Path) -> None:
    with Store(tmp_path / "e.db", create=True) as opened:
        names = [opened.add(record(number)) for number in range(40)]
        for name in names:
            assert opened.find(name.upper()).digest == name
        for wrong in ("abc", "xyz12", "", names[0] + "0"):
            with pytest.raises(InputError):
                opened.find(wrong)


def test_several_records_with_one_prefix_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SHORTEST_PREFIX", 0)
    with Store(tmp_path / "e.db", create=True) as opened:
        for number in range(3):
            opened.add(record(number))
        with pytest.raises(InputError, match="begins 3 records"):
            opened.find("")


def test_a_missing_store_is_empty_and_refuses_records(tmp_path: Path) -> None:
    with Store(tmp_path / "none.db") as opened:
        assert opened.all() == ((), ())
        assert opened.verify() == (0, ())
        with pytest.raises(InputError, match="no evidence store"):
            opened.add(record())
    assert not (tmp_path / "none.db").exists()


def test_an_empty_file_is_a_store_whose_first_writer_died(tmp_path: Path) -> None:
    path = tmp_path / "e.db"
    path.touch()
    with Store(path) as opened:
        assert opened.all() == ((), ())
    with Store(path, create=True) as opened:
        opened.add(record())
    with Store(path) as opened:
        assert len(opened.all()[0]) == 1


@pytest.mark.parametrize("change", ["content", "half", "swapped", "kind", "row", "log", "records"])
def test_what_was_changed_behind_its_back_is_found(tmp_path: Path, change: str) -> None:
    path = tmp_path / "e.db"
    with Store(path, create=True) as opened:
        first, second = opened.add(record(1)), opened.add(record(2))
        assert opened.verify() == (2, ())
    statements = {
        "content": ["UPDATE records SET content = replace(content, '\"exact\"', '\"bounds\"') WHERE digest = ?1"],
        "half": ["UPDATE records SET content = substr(content, 1, 50) WHERE digest = ?1"],
        "swapped": ["UPDATE records SET digest = 'f' || substr(digest, 2) WHERE digest = ?1",
                    "UPDATE log SET digest = 'f' || substr(digest, 2) WHERE digest = ?1"],
        "kind": ["UPDATE records SET kind = 'run' WHERE digest = ?1"],
        "row": ["UPDATE records SET row = 'x' WHERE digest = ?1"],
        "log": ["DELETE FROM log WHERE digest = ?1"],
        "records": ["DELETE FROM records WHERE digest = ?1"],
    }[change]  # fmt: skip
    assert not first.startswith("f")
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement, (first,))
    connection.commit()
    connection.close()
    with Store(path) as opened:
        _, damages = opened.verify()
        assert [damage.digest[1:] for damage in damages] == [first[1:]]
        if change in ("content", "half", "swapped"):
            stored, broken = opened.all()
            assert ([one.digest for one in stored], len(broken)) == ([second], 1)
            with pytest.raises(InvalidEvidenceError):
                opened.find(damages[0].digest)


def test_text_that_has_the_right_digest_and_is_no_record_is_refused() -> None:
    for text in ("{}", "[]", "7", "{", json.dumps({"format": "quantify-record/2"})):
        with pytest.raises(InvalidEvidenceError):
            records.from_text(text, "2026-01-02T03:04:05+00:00", "it")
    good = records.to_dict(record())
    for change in ({"kind": "gossip"}, {"readings": [{}]}, {"model": {"path": "m"}}, {"created": "yesterday"}):
        with pytest.raises((ValueError, KeyError, TypeError)):
            records.from_dict({**good, **change})


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be read as one\n" * 40, b"x"])
def test_a_foreign_file_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "e.db"
    path.write_bytes(content)
    for create in (False, True):
        with pytest.raises(InputError, match="no evidence store"):
            Store(path, create=create)
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "e.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE records (a)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="no evidence store"):
        Store(path, create=True)
    assert path.read_bytes() == before


def test_a_store_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.db"
    Store(path, create=True).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(InputError, match="later version"):
        Store(path)


def test_a_damaged_page_is_told(tmp_path: Path) -> None:
    path = tmp_path / "e.db"
    with Store(path, create=True) as opened:
        for number in range(200):
            opened.add(record(number))
    content = bytearray(path.read_bytes())
    for page in range(1, len(content) // 4096):
        content[page * 4096 : page * 4096 + 8] = b"\xff" * 8
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match="damaged"), Store(path) as opened:
        opened.all()


def test_a_locked_store_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.0)
    path = tmp_path / "e.db"
    with Store(path, create=True) as opened:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match="locked"):
            opened.add(record())
        other.execute("ROLLBACK")
        other.close()
        opened.add(record())
        assert opened.verify() == (1, ())


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "e.db"
    with Store(path, create=True) as opened:
        first = opened.add(record())
        assert opened._connection is not None
        # SQLite's own limit gives the error that a full disk gives.
        opened._connection.execute(f"PRAGMA max_page_count = {opened._pragma('page_count') + 1}")
        with pytest.raises(InputError, match="full"):
            opened.add(record(1, body={"text": "x" * 100_000}))
        assert opened.verify() == (1, ())
        assert opened.find(first).record == record()


def test_places_that_cannot_be_written_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="folder"):
        Store(tmp_path, create=True)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file"):
        Store(tmp_path / "file" / "e.db", create=True)
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "x.db"))
    assert store.store_path() == tmp_path / "x.db"
    monkeypatch.setenv(store.VARIABLE, "")
    assert store.store_path() == Path(".quantify/evidence.db")
    if os.getuid():
        (tmp_path / "shut").mkdir(mode=0o500)
        with pytest.raises(InputError):
            Store(tmp_path / "shut" / "e.db", create=True)
