"""Answers and labels of a test file go in; the metrics that a data scientist reads off it come out, as exact ratios."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def metrics_on_rows(answers: Sequence[int], labels: Sequence[int], positive: int | None) -> dict[str, Fraction | None]:
    """Accuracy, and with a positive class precision, recall and f1; 0/0 is None.

    Args:
        answers: Class index the model gives each row.
        labels: Class index that is right.
        positive: Class index of the positive class, or None.
    """
    pairs = list(zip(answers, labels, strict=True))
    right = sum(answer == label for answer, label in pairs)
    found: dict[str, Fraction | None] = {"accuracy": _ratio(right, len(pairs))}
    if positive is not None:
        tp = sum(answer == positive == label for answer, label in pairs)
        said = sum(answer == positive for answer, _ in pairs)
        true = sum(label == positive for _, label in pairs)
        found["precision"] = _ratio(tp, said)
        found["recall"] = _ratio(tp, true)
        found["f1"] = _ratio(2 * tp, said + true)
    return found


def _ratio(part: int, whole: int) -> Fraction | None:
    return Fraction(part, whole) if whole else None
