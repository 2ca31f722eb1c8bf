"""Tables that share a file name: the gate takes none for another."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from gate_records import Project

from quantify.errors import InputError
from quantify.evidence.proportions import proportion
from quantify.ir.count import Guarantee
from quantify.ir.record import Draws, Reading
from quantify.ir.verdict import Outcome

METRICS = ("worst_slice_accuracy", "incon_k", "predicted_loss", "adversarial_rate")
KINDS = dict(zip(METRICS, ("slices", "slices", "transfer", "evolve"), strict=True))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    for folder in ("north", "south", "copy"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "test.csv").write_text("of the south" if folder == "south" else "of the north")
    return made


def measure(project: Project, metric: str, folder: str, value: Fraction, domain: str = "abroad") -> str:
    """Record a rate of FOLDER/test.csv."""
    about, name, sides = "table", "test.csv", {"subject": "test.csv"}
    if metric == "incon_k":
        reading = Reading(metric, about, lower=value, upper=value, value=value, guarantee=Guarantee.EXACT, **sides)
    else:
        reading = proportion(metric, about, name, Draws(int(value * 1000), 1000), support=1000)
    data = [project.ref("table", f"{folder}/test.csv")]
    body = {}
    if metric == "predicted_loss":
        (project.folder / "abroad.csv").write_text(domain)
        data.append(project.ref("operating", "abroad.csv"))
        body = {"loss": {"column": "failed"}}
    return project.add(KINDS[metric], reading, data=tuple(data), body=body)


def rule(metric: str, more: str = "") -> str:
    return f"{{id: r, metric: {metric}, least_guarantee: sampled, max: 0.5{more}}}"


@pytest.mark.parametrize("metric", METRICS)
def test_a_table_does_not_replace_another_of_its_name(project: Project, metric: str) -> None:
    measure(project, metric, "north", Fraction(9, 10))
    measure(project, metric, "south", Fraction(1, 10))
    for more in ("", ", table: test.csv"):
        with pytest.raises(InputError) as error:
            project.rule(rule(metric, more))
        assert "several tables called 'test.csv'" in error.value.message
        assert "north/test.csv" in error.value.message
        assert "south/test.csv" in error.value.message
        assert "table: ./test.csv" in error.value.hint
    assert project.rule(rule(metric, ", table: north/test.csv")).outcome is Outcome.FAIL
    assert project.rule(rule(metric, ", table: south/test.csv")).outcome is Outcome.PASS


def test_a_later_run_on_the_same_table_replaces_the_earlier_one(project: Project) -> None:
    """A copy in another folder is the same table."""
    measure(project, "adversarial_rate", "north", Fraction(9, 10))
    last = measure(project, "adversarial_rate", "copy", Fraction(1, 10))
    for table in ("test.csv", "north/test.csv", "copy/test.csv"):
        finding = project.rule(rule("adversarial_rate", f", table: {table}"))
        assert finding.outcome is Outcome.PASS
        assert {source.digest: source.use for source in finding.sources}[last] == "decides"
        assert [source.reason.code for source in finding.sources if source.reason] == ["superseded"]


def test_what_was_measured_before_a_table_changed_is_stale_and_in_nobody_s_way(project: Project) -> None:
    measure(project, "adversarial_rate", "north", Fraction(9, 10))
    (project.folder / "north" / "test.csv").write_text("of the north, again")
    finding = project.rule(rule("adversarial_rate", ", table: north/test.csv"))
    assert (finding.outcome, finding.reasons[0].code) == (Outcome.INSUFFICIENT_EVIDENCE, "stale")
    measure(project, "adversarial_rate", "north", Fraction(1, 10))
    for more in ("", ", table: test.csv", ", table: ./north/test.csv"):
        assert project.rule(rule("adversarial_rate", more)).outcome is Outcome.PASS


def test_two_contents_of_a_file_that_is_gone_are_two_tables(project: Project) -> None:
    """Both records say `test.csv`, as those of commands in two folders do."""
    for content, value in (("one", Fraction(9, 10)), ("two", Fraction(1, 10))):
        (project.folder / "north" / "test.csv").write_text(content)
        measure(project, "adversarial_rate", "north", value)
    (project.folder / "north" / "test.csv").unlink()
    path = project.folder / "north" / "test.csv"
    for named in ("test.csv", str(path)):
        with pytest.raises(InputError, match="several tables"):
            project.rule(rule("adversarial_rate", f", table: {named}"))
    path.write_text("one")
    assert project.rule(rule("adversarial_rate", ", table: test.csv")).outcome is Outcome.FAIL


def test_a_table_that_is_not_there_is_known_by_its_path_on_record(project: Project) -> None:
    measure(project, "adversarial_rate", "north", Fraction(1, 10))
    path = project.folder / "north" / "test.csv"
    path.unlink()
    assert project.rule(rule("adversarial_rate", f", table: {path}")).outcome is Outcome.PASS
    with pytest.raises(InputError, match="there is no table east/"):
        project.rule(rule("adversarial_rate", ", table: east/test.csv"))
    finding = project.rule(rule("adversarial_rate", ", table: south/test.csv"))
    assert (finding.outcome, finding.reasons[0].code) == (Outcome.INSUFFICIENT_EVIDENCE, "never_measured")


def test_operating_domains_are_told_apart_by_content(project: Project) -> None:
    measure(project, "predicted_loss", "north", Fraction(9, 10), "winter")
    measure(project, "predicted_loss", "north", Fraction(1, 10), "summer")
    assert project.rule(rule("predicted_loss", ", table: test.csv")).outcome is Outcome.PASS
    (project.folder / "abroad.csv").unlink()
    with pytest.raises(InputError, match="for several"):
        project.rule(rule("predicted_loss", ", table: test.csv"))
