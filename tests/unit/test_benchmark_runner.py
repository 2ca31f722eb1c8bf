"""The benchmark runner keeps what is finished: after an interruption, a failure, and a run of other tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
MODULES = ("run", "harness", "report")


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import run

    yield run
    for name in MODULES:
        sys.modules.pop(name, None)


Make = Callable[[str, dict[str, Any]], Any]


@pytest.fixture
def table(runner: ModuleType) -> Make:
    """A table whose rows are given: a number to store, or an exception to raise."""
    import harness

    def make(name: str, rows: dict[str, Any]) -> Any:
        def measure(value: Any) -> dict[str, Any]:
            if isinstance(value, BaseException):
                raise value
            return {"value": value}

        def jobs(_: Any) -> list[Any]:
            return [harness.Job(key, lambda value=value: measure(value)) for key, value in rows.items()]

        def markdown(finished: Any) -> str:
            return " ".join(f"{row['key']}={row['value']}" for row in finished) + "\n"

        return harness.Table(name, f"Title {name}", jobs, markdown)

    return make


def measured(runner: ModuleType, tables: list[Any], results: Path, fresh: bool = False, only: str = "") -> list[str]:
    import harness

    failed: list[str] = runner.run(tables, harness.Settings(limit=7), results, fresh=fresh, only=only)
    return failed


def stored(results: Path) -> dict[str, int]:
    return {row["key"]: row["value"] for row in json.loads((results / "RESULTS.json").read_text())}


def test_a_finished_row_is_measured_once(runner: ModuleType, table: Make, tmp_path: Path) -> None:
    assert measured(runner, [table("1", {"a": 1, "b": KeyboardInterrupt()})], tmp_path, only="a") == []
    with pytest.raises(KeyboardInterrupt):
        measured(runner, [table("1", {"a": 2, "b": KeyboardInterrupt()})], tmp_path)
    (tmp_path / "rows.jsonl").write_text((tmp_path / "rows.jsonl").read_text() + '{"key": "b", "val')
    again = table("1", {"a": 3, "b": 4})
    assert measured(runner, [again], tmp_path) == []
    runner.write([again], tmp_path)
    assert stored(tmp_path) == {"a": 1, "b": 4}
    assert measured(runner, [again], tmp_path, fresh=True, only="a") == []
    runner.write([again], tmp_path)
    assert stored(tmp_path) == {"a": 3, "b": 4}


def test_a_row_that_fails_leaves_the_others(runner: ModuleType, table: Make, tmp_path: Path) -> None:
    broken = table("1", {"a": ValueError("no"), "b": 2})
    assert measured(runner, [broken], tmp_path) == ["a"]
    runner.write([broken], tmp_path)
    assert stored(tmp_path) == {"b": 2}


def test_rows_of_other_tables_stay_in_the_report(runner: ModuleType, table: Make, tmp_path: Path) -> None:
    first, second = table("1", {"a": 1}), table("2", {"c": 3})
    old = {"key": "z", "table": 1, "machine": {"cpu": "old"}, "limit": 5, "value": 9}
    (tmp_path / "RESULTS.json").write_text(json.dumps([{**old, "key": "c", "table": "2"}, old]))
    assert measured(runner, [second], tmp_path) == []
    runner.write([first, second], tmp_path)
    assert stored(tmp_path) == {"z": 9, "c": 3}
    report = (tmp_path / "RESULTS.md").read_text()
    assert report.index("Title 1") < report.index("z=9") < report.index("Title 2") < report.index("c=3")
    assert "cpu old; 5 s for each way" in report
