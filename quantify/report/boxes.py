"""Boxes of inputs with the number of inputs in each to JSON or CSV text, written as they come."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from typing import IO, Any, Protocol

from quantify.ir.count import Count
from quantify.ir.digits import plain, to_digits
from quantify.ir.domain import CategoricalFeature, Domain, Shown
from quantify.ir.problem import Box, Case, Problem
from quantify.report.json import count_to_dict

SCHEMA = "quantify/boxes/1"


class BoxWriter(Protocol):
    """Writes the boxes of one case after the other."""

    def case(self, problem: Problem, case: Case, boxes: Iterable[tuple[str, Box]], counts: Mapping[str, Count]) -> None:
        """Write one case: boxes, each after the name of its query (or "open"), and the counts of these queries."""

    def end(self) -> None:
        """Complete the text after the last case."""


class JsonBoxes:
    """A box a line in {schema, cases: [{property, model, row, label, epsilon, boxes, held, counts}]}.

    A box is {of, count, input}; `of` names a query or says "open" (neither proven in nor out).
    `input` has [lowest, highest] per feature, both inside (every name for categories), `held` the sum of the boxes by
    `of`. Numbers of inputs are decimal strings.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file, self._cases = file, 0

    def case(self, problem: Problem, case: Case, boxes: Iterable[tuple[str, Box]], counts: Mapping[str, Count]) -> None:
        """See `BoxWriter.case`."""
        held = dict.fromkeys(counts, 0)
        head = {
            "property": problem.property_sha256,
            "model": problem.model.sha256,
            "row": case.row,
            "label": case.label,
            "epsilon": None if case.epsilon is None else plain(case.epsilon),
        }
        self._file.write(self._separator() + json.dumps(head, ensure_ascii=False)[:-1] + ', "boxes": [')
        separator = "\n"
        for name, box in boxes:
            held[name] = held.get(name, 0) + box.size
            line = {"of": name, "count": to_digits(box.size), "input": _ends(problem.domain, box)}
            self._file.write(separator + json.dumps(line, ensure_ascii=False))
            separator = ",\n"
        told = {name: count_to_dict(count) for name, count in counts.items()}
        sums = {name: to_digits(sum_of) for name, sum_of in held.items()}
        tail = json.dumps({"held": sums, "counts": told}, ensure_ascii=False)
        self._file.write(f"\n], {tail[1:]}")

    def end(self) -> None:
        """See `BoxWriter.end`."""
        self._file.write((self._separator() if not self._cases else "") + "\n]}\n")

    def _separator(self) -> str:
        self._cases += 1
        return f'{{"schema": "{SCHEMA}", "cases": [\n' if self._cases == 1 else ",\n"


class CsvBoxes:
    """A line a box: row, epsilon, of, count, and per feature the lowest and the highest value (both inside)."""

    def __init__(self, file: IO[str]) -> None:
        self._writer, self._started = csv.writer(file, lineterminator="\n"), False

    def case(self, problem: Problem, case: Case, boxes: Iterable[tuple[str, Box]], counts: Mapping[str, Count]) -> None:
        """See `BoxWriter.case`."""
        if not self._started:
            names = [f"{end} {feature.name}" for feature in problem.domain for end in ("lowest", "highest")]
            self._writer.writerow(["row", "epsilon", "of", "count", *names])
            self._started = True
        where: list[Any] = [
            "" if case.row is None else case.row,
            "" if case.epsilon is None else plain(case.epsilon),
        ]
        for name, box in boxes:
            ends = [value for shown in _ends(problem.domain, box).values() for value in (shown[0], shown[-1])]
            self._writer.writerow([*where, name, to_digits(box.size), *ends])

    def end(self) -> None:
        """See `BoxWriter.end`."""


def _ends(domain: Domain, box: Box) -> dict[str, list[Shown]]:
    return {
        feature.name: [feature.shown(place) for place in range(low, high)]
        if isinstance(feature, CategoricalFeature)
        else [feature.shown(low), feature.shown(high - 1)]
        for feature, low, high in zip(domain, box.low, box.high, strict=True)
    }
