"""Records refuse what cannot be true of a rate."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from quantify.ir.count import Guarantee
from quantify.ir.record import METRICS, DataRef, Draws, ModelRef, Reading, Record

HALF = Fraction(1, 2)
EXACT = Reading("violation", "property", "phi", HALF, HALF, HALF, Guarantee.EXACT)
SAMPLED = replace(EXACT, lower=Fraction(0), upper=Fraction(1), guarantee=Guarantee.SAMPLED, risk=Fraction(1, 20))


@pytest.mark.parametrize(
    ("reading", "change", "said"),
    [
        (EXACT, {"metric": "goodness"}, "no metric 'goodness'"),
        (EXACT, {"about": "suite"}, "not about a suite"),
        (EXACT, {"subject": ""}, "without a subject"),
        (EXACT, {"group": ""}, "empty group"),
        (EXACT, {"lower": Fraction(2, 3)}, "does not hold"),
        (EXACT, {"value": Fraction(2, 3)}, "does not hold"),
        (EXACT, {"lower": Fraction(1, 3)}, "exact, but"),
        (EXACT, {"risk": Fraction(1, 3)}, "exact with a risk"),
        (EXACT, {"guarantee": Guarantee.BOUNDS, "draws": (Draws(1, 2),)}, "bounds by draws"),
        (EXACT, {"guarantee": Guarantee.BOUNDS, "upper": Fraction(3, 2)}, "outside 0 to 1"),
        (EXACT, {"guarantee": Guarantee.BOUNDS, "lower": Fraction(-1)}, "outside 0 to 1"),
        (EXACT, {"support": -1}, "a support of -1"),
        (SAMPLED, {"risk": Fraction(0)}, "sampled with a risk of 0"),
        (SAMPLED, {"risk": Fraction(2)}, "a risk of 2"),
    ],
)
def test_a_reading_that_cannot_be_true_is_refused(reading: Reading, change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(reading, **change)  # type: ignore[arg-type]


def test_a_loss_may_be_larger_than_one() -> None:
    Reading("predicted_loss", "table", "t", Fraction(2), Fraction(3), Fraction(2), Guarantee.SAMPLED, risk=HALF)


@pytest.mark.parametrize(
    "arguments",
    [(3, 2), (-1, 2), (1, 2, Fraction(0)), (1, 2, Fraction(2)), (2, 3, Fraction(1), 2)],
)
def test_draws_that_cannot_be_are_refused(arguments: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"draws|hits|weight"):
        Draws(*arguments)  # type: ignore[arg-type]


def test_references_need_a_whole_digest() -> None:
    for bad in ("", "abc", "G" * 64, "a" * 65):
        with pytest.raises(ValueError, match="SHA-256"):
            ModelRef("m", bad, "tree")
        with pytest.raises(ValueError, match="SHA-256"):
            DataRef("cases", "c.csv", bad)


def test_records_need_a_kind_a_version_and_a_zone() -> None:
    good = Record("leakage", "2026-01-02T03:04:05+00:00", {"version": "1"})
    for change, said in (
        ({"kind": "gossip"}, "kind"),
        ({"status": "fine"}, "status"),
        ({"tool": {}}, "version"),
        ({"created": "2026-01-02T03:04:05"}, "time zone"),
        ({"kind": "count"}, "a count of nothing"),
    ):
        with pytest.raises(ValueError, match=said):
            replace(good, **change)


def test_every_metric_says_what_it_means() -> None:
    for name, metric in METRICS.items():
        assert name.isidentifier()
        assert metric.about
        assert metric.meaning
