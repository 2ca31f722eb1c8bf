"""What contradicts what, and the bundle a contradiction leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from quantify.errors import ContradictionError, InputError
from quantify.evidence import bundle, crosscheck
from quantify.ir.count import Count, Guarantee
from quantify.ir.domain import Measure
from quantify.ir.predicate import AllOf, CountOf, Extreme, HasLabel, Linear, Negation, Plus, Sign, Within
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, GridTree


def exact(number: int, engine: str = "boxes") -> Count:
    return Count(number, number, Guarantee.EXACT, engine, 0.0, "d")


def proven(lower: int, upper: int) -> Count:
    return Count(lower, upper, Guarantee.BOUNDS, "bdd", 0.0, "d")


def ganak(number: int) -> Count:
    return Count(number, number, Guarantee.PROB_EXACT, "cnf", 0.0, "d", delta=Fraction(1, 10**6))


def pac(lower: int, upper: int, delta: Fraction) -> Count:
    return Count(lower, upper, Guarantee.PAC, "cnf", 0.0, "d", epsilon=Fraction(4, 5), delta=delta)


def sampled(hits: int, samples: int) -> Count:
    # The stated interval is narrow on purpose: only the one at 10^-6 may contradict.
    count = Count(hits, hits, Guarantee.SAMPLED, "sample", 0.0, "d", confidence=Fraction(1, 2))
    return replace(count, samples=samples, hits=hits)


# --- two ways ------------------------------------------------------------------------------------------------------
def test_equal_exact_counts_agree() -> None:
    check = crosscheck.agreement({"q": exact(5), "r": exact(6)}, {"q": exact(5, "enumerate"), "r": ganak(6)}, 11)
    assert check.status == "ok"
    assert "boxes and enumerate and cnf agree on q, r" in check.detail


def test_exact_counts_one_apart_contradict_and_both_are_named() -> None:
    for other in (exact(6, "enumerate"), ganak(6), proven(6, 9)):
        with pytest.raises(ContradictionError) as caught:
            crosscheck.agreement({"q": exact(5)}, {"q": other}, 11)
        assert "5 (exact, boxes)" in caught.value.message
        assert other.engine in caught.value.message
        assert caught.value.exit_code == 4


def test_bounds_that_overlap_are_consistent_but_no_confirmation() -> None:
    assert crosscheck.agreement({"q": exact(5)}, {"q": proven(0, 11)}, 11).status == "measured"
    assert crosscheck.agreement({"q": proven(0, 5)}, {"q": proven(5, 11)}, 11).status == "measured"


def test_an_approximate_count_that_misses_is_a_warning_unless_delta_is_tiny() -> None:
    assert crosscheck.agreement({"q": exact(50)}, {"q": pac(40, 90, Fraction(1, 5))}, 100).status == "ok"
    missed = crosscheck.agreement({"q": exact(50)}, {"q": pac(60, 90, Fraction(1, 5))}, 100)
    assert missed.status == "warning"
    assert "60 to 90 (pac, cnf)" in missed.detail
    with pytest.raises(ContradictionError):
        crosscheck.agreement({"q": exact(50)}, {"q": pac(60, 90, Fraction(1, 10**7))}, 100)


def test_a_sample_contradicts_only_at_one_in_a_million() -> None:
    # p = 1/2, n = 10,000: sd 50. The interval at 10^-6 reaches about 4.9 sd.
    for hits in (5000, 4800, 5200):
        assert crosscheck.agreement({"q": exact(500)}, {"q": sampled(hits, 10_000)}, 1000).status == "ok"
    for hits in (4700, 5300):
        with pytest.raises(ContradictionError):
            crosscheck.agreement({"q": exact(500)}, {"q": sampled(hits, 10_000)}, 1000)


def test_nothing_in_common_is_skipped() -> None:
    assert crosscheck.agreement({"q": exact(5)}, {"r": exact(5)}, 11).status == "skipped"


def test_long_numbers_in_messages_are_shortened() -> None:
    with pytest.raises(ContradictionError) as caught:
        crosscheck.agreement({"q": exact(10**20000)}, {"q": exact(10**20000 + 1)}, 10**20001)
    assert "(20001 digits)" in caught.value.message
    assert len(caught.value.message) < 300


# --- partitions ----------------------------------------------------------------------------------------------------
def test_partitions_sum_to_the_region() -> None:
    counts = {"a": exact(3), "b": exact(4)}
    check = crosscheck.partitions(counts, (("a", "b"),), 7)
    assert check.status == "ok"
    assert "a + b = 7" in check.detail
    with pytest.raises(ContradictionError, match="a + b cannot be 8".replace("+", r"\+")):
        crosscheck.partitions(counts, (("a", "b"),), 8)


def test_partitions_of_bounds_may_sum_to_the_region() -> None:
    assert crosscheck.partitions({"a": exact(3), "b": proven(1, 9)}, (("a", "b"),), 7).status == "measured"
    with pytest.raises(ContradictionError):
        crosscheck.partitions({"a": exact(3), "b": proven(5, 9)}, (("a", "b"),), 7)


def test_partitions_that_were_not_counted_are_skipped() -> None:
    assert crosscheck.partitions({"a": exact(3)}, (("a", "b"),), 7).status == "skipped"
    assert crosscheck.partitions({"a": exact(3)}, (), 7).status == "skipped"


def test_partitions_of_approximate_counts_only_warn() -> None:
    counts = {"a": pac(1, 2, Fraction(1, 5)), "b": exact(3)}
    assert crosscheck.partitions(counts, (("a", "b"),), 7).status == "warning"
    assert crosscheck.partitions(counts, (("a", "b"),), 5).status == "measured"


def test_partitions_of_samples_are_widened_first() -> None:
    counts = {"a": sampled(4900, 10_000), "b": sampled(5000, 10_000)}
    assert crosscheck.partitions(counts, (("a", "b"),), 1000).status == "measured"


# --- bundles -------------------------------------------------------------------------------------------------------
def small_problem() -> tuple[GridProblem, GridCase]:
    number = Plus((Linear(((0, 3),), -(10**40)), CountOf((Within(1, 0, 2),)), Extreme("max", (Linear((), 1),))))
    predicate = AllOf((HasLabel((1,)), Negation(Within(0, 1, 2)), Sign("<=", number)))
    ball = Ball(Box((0, 0), (5, 4)), (1, 1), "l1", (1, 2), 3)
    case = GridCase(ball, (GridQuery("q", predicate), GridQuery("rest", Negation(predicate), False)), (("q", "rest"),))
    tree = GridTree((0, -1, -1), (2, 0, 0), (5, 0, 0), (1, 0, 0), (2, 0, 0), (0, 0, 1))
    return GridProblem((5, 4), 2, tree, Measure("product", ((1, 0, 2**60, 3, 4), None), "given"), (case,)), case


def test_a_bundle_holds_the_problem_the_counts_and_the_files(tmp_path: Path) -> None:
    grid, case = small_problem()
    model, prop = tmp_path / "my model.pkl", tmp_path / "problem.json"  # the second name is one of the bundle's own
    model.write_bytes(b"model")
    prop.write_text("property: safety\n")
    first, second = {"q": exact(10**50)}, {"q": pac(1, 2, Fraction(1, 5))}
    folder = bundle.write_bundle(tmp_path / "out", grid, case, first, second, (model, prop), "q: 5, but 6")
    again, same_case = bundle.read_problem(folder / "problem.json")
    assert (again, same_case) == (grid, case)
    assert again.digest(same_case) == grid.digest(case)
    counts = json.loads((folder / "counts.json").read_text())
    assert counts["first"]["q"]["lower"] == {"int": str(10**50)}
    assert counts["second"]["q"]["delta"] == {"ratio": "1/5"}
    assert (folder / "my model.pkl").read_bytes() == b"model"
    readme = (folder / "README.txt").read_text()
    assert "q: 5, but 6" in readme
    assert "quantify count 'my model.pkl' --property 1-problem.json --cross-check" in readme
    assert json.loads((folder / "versions.json").read_text())["libraries"]["numpy"]


def test_a_bundle_never_overwrites(tmp_path: Path) -> None:
    grid, case = small_problem()
    folders = {bundle.write_bundle(tmp_path, grid, case, {}, {}, (), "r") for _ in range(3)}
    assert len(folders) == 3
    assert all((folder / "README.txt").exists() for folder in folders)


def test_a_missing_file_does_not_hide_the_contradiction(tmp_path: Path) -> None:
    grid, case = small_problem()
    folder = bundle.write_bundle(tmp_path, grid, case, {}, {}, (tmp_path / "gone.pkl",), "r")
    assert "could not be copied" in (folder / "README.txt").read_text()


def test_a_folder_that_cannot_be_written_still_reports_the_contradiction(tmp_path: Path) -> None:
    grid, case = small_problem()
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(ContradictionError, match="5 is not 6"):
        bundle.write_bundle(blocker, grid, case, {}, {}, (), "5 is not 6")


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    for text in ("", "{}", '{"problem": {"is": "Path"}, "case": 1}', '{"problem": 1, "case": 1}'):
        (tmp_path / "problem.json").write_text(text)
        with pytest.raises(InputError):
            bundle.read_problem(tmp_path / "problem.json")


def test_replaced_fields_change_the_folder_name(tmp_path: Path) -> None:
    grid, case = small_problem()
    other = replace(case, partitions=())
    one = bundle.write_bundle(tmp_path, grid, case, {}, {}, (), "r")
    two = bundle.write_bundle(tmp_path, grid, other, {}, {}, (), "r")
    assert one.name != two.name
    assert not one.name.endswith("-2")
