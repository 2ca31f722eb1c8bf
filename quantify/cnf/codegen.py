"""Integer problem + case + query in, C text out: for CBMC (`emit_c`), or for any C11 compiler (`emit_program`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from quantify.cnf.lowering import box_of, straighten, straighten_labels, untouched
from quantify.cnf.straight import Input, StraightLine
from quantify.cnf.words import literal
from quantify.errors import InputError
from quantify.ir.problem import Ball, GridCase, GridProblem, GridQuery, Region
from quantify.resources import templates_dir

if TYPE_CHECKING:
    from jinja2 import Environment

LONGEST_NAME = 60
PROGRAM_BITS = 127
"""Widest word of the compiled flavour (__int128); 63 for positions."""


@dataclass(frozen=True, slots=True)
class Names:
    """What features and classes are called in comments; any text is safe here."""

    features: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    def feature(self, place: int) -> str:
        """The name of a feature, fit for a C comment."""
        return in_comment(self.features[place]) if place < len(self.features) else f"feature {place}"

    def label(self, index: int) -> str:
        """The name of a class, fit for a C comment."""
        return in_comment(self.labels[index]) if index < len(self.labels) else f"class {index}"


NO_NAMES = Names()


def in_comment(name: str) -> str:
    """A user's name as printable ASCII that neither ends a comment, nor opens one, nor forms a trigraph."""
    text = name.encode("ascii", "backslashreplace").decode("ascii")
    text = "".join(c if " " <= c <= "~" else f"\\x{ord(c):02x}" for c in text)
    if len(text) > LONGEST_NAME:
        text = text[: LONGEST_NAME - 3] + "..."
    return text.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def symbols(queries: Sequence[GridQuery]) -> tuple[str, ...]:
    """One C identifier part per query: its name with other characters replaced, numbered where two would be equal."""
    taken: list[str] = []
    for query in queries:
        base = symbol = re.sub(r"[^A-Za-z0-9_]", "_", query.name)[:LONGEST_NAME]
        number = 2
        while symbol in taken:
            symbol, number = f"{base}_{number}", number + 1
        taken.append(symbol)
    return tuple(taken)


def emit_c(problem: GridProblem, case: GridCase, query: GridQuery, names: Names = NO_NAMES) -> str:
    """The harness for CBMC: include-free C whose failing executions are the inputs that satisfy the query.

    Raises:
        InputError: The predicate's arithmetic needs words that are too wide.
    """
    return harness(straighten(problem, case, query), case.region, query, names)


def harness(line: StraightLine, region: Region, query: GridQuery, names: Names = NO_NAMES) -> str:
    """The harness of a program that was lowered already."""
    template = _environment().get_template("harness.c.j2")
    return template.render(
        line=line,
        query_name=in_comment(query.name),
        query_symbol=symbols((query,))[0],
        shape=_shape(region),
        untouched=untouched(region, line.inputs),
        input_words=sorted({item.word for item in line.inputs}, key=lambda word: word.bits),
        width=lambda item: literal(item.width, item.word),
        input_comment=lambda item: _input_comment(item, names),
        label_names=lambda labels: _label_names(labels, names),
    )


def emit_program(problem: GridProblem, case: GridCase, names: Names = NO_NAMES) -> str:
    """Plain C11 with `int classify(const long long *positions)` and one `int query_NAME(…)` per query of the case.

    The statements are those of the harness; only input and output differ. NAME is made by `symbols`.

    Raises:
        InputError: A position needs more than 63 bits, or the arithmetic more than 127.
    """
    labels = straighten_labels(problem)
    lines = [straighten(problem, case, query) for query in case.queries]
    words = sorted({word for line in (labels, *lines) for word in line.words}, key=lambda w: (w.bits, w.signed))
    if any(size >= 1 << 63 for size in problem.sizes) or any(word.bits > PROGRAM_BITS for word in words):
        raise InputError(
            "the compiled program would need integers beyond 128 bits", "emit the C that CBMC reads instead"
        )
    box = box_of(case.region)
    return (
        _environment()
        .get_template("program.c.j2")
        .render(
            features=[f"{names.feature(i)}, 0...{size - 1}" for i, size in enumerate(problem.sizes)],
            class_list=", ".join(f"{index} = {names.label(index)}" for index in range(problem.labels)),
            words=words,
            labels=labels,
            queries=[
                {"name": in_comment(query.name), "symbol": symbol, "line": line}
                for query, symbol, line in zip(case.queries, symbols(case.queries), lines, strict=True)
            ],
            low=box.low,
            high=box.high,
            shape=_shape(case.region),
            input_comment=lambda item: _input_comment(item, names),
            label_names=lambda wanted: _label_names(wanted, names),
        )
    )


def _input_comment(item: Input, names: Names) -> str:
    return f"{names.feature(item.feature)}: position - {item.low}, below {item.width}"


def _label_names(labels: Sequence[int], names: Names) -> str:
    return " or ".join(names.label(label) for label in labels)


def _shape(region: Region) -> str:
    if isinstance(region, Ball):
        what = "weighted l1 distance" if region.norm == "l1" else "number of changed features"
        return f"the points of a box whose {what} from the centre is at most {region.radius}"
    return "a box"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(templates_dir("c")),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - C, not HTML; names pass through in_comment
    )
