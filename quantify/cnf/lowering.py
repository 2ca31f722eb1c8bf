"""Integer problem + case + query in, straight-line program out.

Everything is in the coordinates of the region's box: input x3 runs over 0…width−1, so what the box decides vanishes
here, and features that nothing refers to never become inputs. Every integer has a proven interval and the narrowest
word that holds it; it is computed where all its operands and partial results fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce

from quantify.cnf import network_lowering, selects
from quantify.cnf.straight import EMPTY, Input, Let, StraightLine, TreeLets, enclosed, live, names_in, negated
from quantify.cnf.sums import Sum
from quantify.cnf.words import BIT, Interval, Word, join, literal, wide, word_for
from quantify.ir.network import IntNetwork
from quantify.ir.predicate import (
    AllOf,
    Always,
    AnyOf,
    CountOf,
    Extreme,
    FloorDiv,
    HasLabel,
    IntExpr,
    Linear,
    Negation,
    Plus,
    Predicate,
    Score,
    Sign,
    Times,
    Within,
)
from quantify.ir.problem import Ball, Box, GridCase, GridProblem, GridQuery, GridTree, Region

ONE_LINE = 4
"""Longest conjunction or disjunction that is written inside another expression."""
ONE_STATEMENT = 64
"""Longest conjunction or disjunction that is one statement: C front ends recurse over operators."""
ONE_SUM = 3
"""Longest sum that is one statement; longer ones are halved, which keeps the adders narrow."""


def straighten(problem: GridProblem, case: GridCase, query: GridQuery) -> StraightLine:
    """The program of one query over one case's region.

    Raises:
        InputError: The predicate's arithmetic needs words beyond `quantify.cnf.words.MAX_BITS`.
    """
    box = box_of(case.region)
    if box.size == 0:
        return EMPTY
    lowering = _Lowering(problem.structure, problem.labels, box)
    restriction = lowering.ball(case.region) if isinstance(case.region, Ball) else "1"
    region, lowering.lets = lowering.lets, []
    network = lowering.network()
    condition = lowering.truth(query.predicate)
    return _pruned(box, region, restriction, network, lowering.trees, lowering.lets, condition)


def straighten_labels(problem: GridProblem) -> StraightLine:
    """The program whose `condition` is the class index, over the whole domain."""
    box = Box((0,) * len(problem.sizes), problem.sizes)
    lowering = _Lowering(problem.structure, problem.labels, box)
    word = word_for((0, max(1, problem.labels - 1)))
    if isinstance(problem.structure, IntNetwork):
        network = lowering.network()
        value = network_lowering.label_index(lowering, lowering.scores, word)
        return _pruned(box, [], "1", network, {}, lowering.lets, value)
    value, lets = selects.evaluate(problem.structure, lowering.test, str, word, "n")
    return _pruned(box, [], "1", [], {tuple(range(problem.labels)): (value, lets)}, [], value)


def require_narrow(network: IntNetwork, region: Region) -> None:
    """Lower a network and its label by themselves.

    Raises:
        InputError: It has a layer that is not written in C, or needs words beyond `quantify.cnf.words.MAX_BITS`.
    """
    box = box_of(region)
    if box.size:
        lowering = _Lowering(network, network.outputs, box)
        lowering.network()
        network_lowering.label_index(lowering, lowering.scores, word_for((0, network.outputs)))


def box_of(region: Region) -> Box:
    """The box that a region lies in."""
    return region.box if isinstance(region, Ball) else region


def untouched(region: Region, inputs: Iterable[Input]) -> int:
    """Number of combinations, inside the region's box, of the features that are no inputs (0 for an empty box)."""
    box = box_of(region)
    return box.size // math.prod(item.width for item in inputs)


def _pruned(
    box: Box,
    region: list[Let],
    restriction: str,
    network: list[Let],
    trees: dict[tuple[int, ...], tuple[str, list[Let]]],
    query: list[Let],
    condition: str,
) -> StraightLine:
    """The program without assignments and inputs that nothing needs."""
    needed = names_in((restriction, condition))
    kept_query = live(query, needed)
    kept_trees = [TreeLets(labels, live(lets, needed)) for labels, (_, lets) in trees.items()]
    kept_network = live(network, needed)
    kept_region = live(region, needed)
    inputs = tuple(
        Input(feature, low, high - low)
        for feature, (low, high) in enumerate(zip(box.low, box.high, strict=True))
        if f"x{feature}" in needed
    )
    return StraightLine(
        inputs,
        kept_region,
        restriction,
        tuple(tree for tree in kept_trees if tree.lets),
        kept_query,
        condition,
        kept_network,
    )


class _Lowering:
    """One pass over predicates on one box; collects assignments, named integers and their intervals."""

    def __init__(self, structure: GridTree | IntNetwork, labels: int, box: Box) -> None:
        self.structure = structure
        self.labels = labels
        self.box = box
        self.intervals: dict[str, Interval] = {}
        self.named: dict[tuple[Word, tuple[str, ...], str], str] = {}
        self.lets: list[Let] = []
        self.trees: dict[tuple[int, ...], tuple[str, list[Let]]] = {}
        self.scores: list[Sum] = []

    def network(self) -> list[Let]:
        """The assignments of a network (none for a tree), after which `scores` can be read."""
        if not isinstance(self.structure, IntNetwork):
            return []
        others, self.lets = self.lets, []
        positions = [Sum.of((Sum(low), self.position(i))) for i, low in enumerate(self.box.low)]
        self.scores = network_lowering.scores(self, self.structure, positions)
        network, self.lets = self.lets, others
        return network

    def position(self, feature: int) -> Sum:
        """The position of a feature, counted from the box's lower end."""
        width = self.box.high[feature] - self.box.low[feature]
        if width == 1:
            return Sum(0)
        self.intervals[f"x{feature}"] = (0, width - 1)
        return Sum(0, {f"x{feature}": 1})

    def let(self, kind: str, word: Word, lines: Sequence[str], operator: str = "") -> str:
        """A name for an expression; the old one when the same expression was named before."""
        key = (word, tuple(lines), operator)
        if key not in self.named:
            self.named[key] = f"{kind}{len(self.named)}"
            self.lets.append(Let(word, self.named[key], tuple(lines), operator))
        return self.named[key]

    # --- truth values ----------------------------------------------------------------------------------------------
    def truth(self, predicate: Predicate) -> str:
        """A C expression; "1" and "0" are the constants."""
        match predicate:
            case Always(value):
                return "1" if value else "0"
            case Within(feature, low, high):
                return self.test(feature, low, high)
            case HasLabel(labels):
                return self.label_in(labels)
            case Sign(op, argument):
                return self.sign(op, self.number(argument))
            case Negation(argument):
                return negated(self.truth(argument))
            case AllOf(arguments):
                return self.chain("&&", "0", map(self.truth, arguments))
            case AnyOf(arguments):
                return self.chain("||", "1", map(self.truth, arguments))

    def chain(self, operator: str, absorbing: str, texts: Iterable[str]) -> str:
        """Conjunction or disjunction: short ones inline, long ones named, one operand a line."""
        neutral = negated(absorbing)
        different = dict.fromkeys(text for text in texts if text != neutral)
        if absorbing in different or any(negated(text) in different for text in different):
            return absorbing
        if len(different) <= 1:
            return next(iter(different), neutral)
        parts = [enclosed(text) for text in different]
        while len(parts) > ONE_STATEMENT:
            starts = range(0, len(parts), ONE_STATEMENT)
            parts = [self.let("p", BIT, parts[start : start + ONE_STATEMENT], operator) for start in starts]
        if len(parts) <= ONE_LINE and sum(map(len, parts)) <= 80:
            return f" {operator} ".join(parts)
        return self.let("p", BIT, parts, operator)

    def test(self, feature: int, low: int, high: int) -> str:
        """low ≤ position of the feature < high, in the domain's positions."""
        base = self.box.low[feature]
        position = self.position(feature)
        if not position.terms:
            return "1" if low <= base < high else "0"
        return self.between(f"x{feature}", low - base, high - base)

    def between(self, name: str, low: int, high: int) -> str:
        """low ≤ name < high; as an equality where one value is left or left out, which needs the fewest gates."""
        least, most = self.intervals[name]
        low, high = max(low, least), min(high, most + 1)
        word = word_for((least, most))
        if low >= high:
            return "0"
        if (low, high) == (least, most + 1):
            return "1"
        if (least, most) == (0, 1):
            return name if low else f"!{name}"
        if high - low == 1:
            return f"{name} == {literal(low, word)}"
        if high - low == most - least and low == least:
            return f"{name} != {literal(most, word)}"
        if high - low == most - least:
            return f"{name} != {literal(least, word)}"
        if low == least:
            return f"{name} < {literal(high, word)}"
        if high == most + 1:
            return f"{name} >= {literal(low, word)}"
        return f"{name} >= {literal(low, word)} && {name} < {literal(high, word)}"

    def sign(self, op: str, value: Sum) -> str:
        """value op 0, with the negative terms brought to the other side, so that most words are unsigned."""
        if op == "!=":
            return negated(self.sign("==", value))
        constant = value.constant + (op == "<")
        divisor = reduce(math.gcd, value.terms.values(), 0)
        if not divisor:
            return "1" if constant == 0 or (op != "==" and constant < 0) else "0"
        if op == "==" and constant % divisor:
            return "0"
        constant = -(-constant // divisor)
        left = Sum(0, {a: c // divisor for a, c in value.terms.items() if c > 0})
        right = Sum(0, {a: -c // divisor for a, c in value.terms.items() if c < 0})
        return self.related(left, constant, "==" if op == "==" else "<=", right)

    def related(self, left: Sum, constant: int, op: str, right: Sum) -> str:
        """left + constant op right, op being <= or ==, the sums being without constant."""
        if not right.terms:
            return self.bounded(left, -constant if op == "==" else None, -constant)
        if not left.terms:
            return self.bounded(right, constant, constant if op == "==" else None)
        (a, b), (c, d) = self.range(left), self.range(right)
        if a + constant > d or (op == "==" and b + constant < c):
            return "0"
        if op == "<=" and b + constant <= c:
            return "1"
        if op == "<=" and constant == 1:
            op = "<"
        elif constant:
            (left if constant > 0 else right).constant = abs(constant)
        first, second = self.value(left), self.value(right)
        word = word_for(join(self.intervals[first], self.intervals[second]))
        return f"{wide(first, word)} {op} {wide(second, word)}"

    def bounded(self, value: Sum, low: int | None, high: int | None) -> str:
        """low ≤ value ≤ high for a sum with terms and no constant, None meaning no bound."""
        least, most = self.range(value)
        low = least if low is None else max(low, least)
        high = most if high is None else min(high, most)
        if low > high or (low, high) == (least, most):
            return "0" if low > high else "1"
        return self.between(self.value(value), low, high + 1)

    # --- integers --------------------------------------------------------------------------------------------------
    def number(self, expression: IntExpr) -> Sum:
        """An integer expression as a sum of named integers."""
        match expression:
            case Linear(terms, constant):
                total = Sum(constant)
                for feature, coefficient in terms:
                    total.constant += coefficient * self.box.low[feature]
                    total.add(self.position(feature), coefficient)
                return total
            case Plus(arguments):
                return Sum.of(map(self.number, arguments))
            case Times(left, right):
                return self.product(self.number(left), self.number(right))
            case FloorDiv(argument, divisor):
                return self.floor_div(self.number(argument), divisor)
            case Extreme(which, arguments):
                return self.extreme(which, [self.number(argument) for argument in arguments])
            case CountOf(arguments):
                return Sum.of(self.indicator(self.truth(argument)) for argument in arguments)
            case Score(index):
                return self.scores[index]

    def indicator(self, text: str) -> Sum:
        """1 where the truth value holds, else 0."""
        if text in ("0", "1"):
            return Sum(int(text))
        name = text if text.isalnum() else self.let("b", BIT, [text])
        self.intervals[name] = (0, 1)
        return Sum(0, {name: 1})

    def range(self, value: Sum) -> Interval:
        """The interval of a sum, its atoms taken as independent."""
        low = high = value.constant
        for atom, coefficient in value.terms.items():
            ends = sorted(coefficient * end for end in self.intervals[atom])
            low, high = low + ends[0], high + ends[1]
        return low, high

    def value(self, total: Sum) -> str:
        """A name, or a literal, for the sum."""
        if not total.terms:
            interval = (total.constant, total.constant)
            text = literal(total.constant, word_for(interval))
            self.intervals[text] = interval
            return text
        if len(total.terms) > ONE_SUM:
            atoms = list(total.terms.items())
            middle = len(atoms) // 2
            halves = [self.value(Sum(0, dict(half))) for half in (atoms[:middle], atoms[middle:])]
            shorter = Sum.of(Sum(0, {half: 1}) for half in halves)
            shorter.constant = total.constant
            return self.value(shorter)
        if total.constant == 0 and list(total.terms.values()) == [1]:
            return next(iter(total.terms))
        return self.short_sum(total)

    def short_sum(self, total: Sum) -> str:
        """One statement, computed where every operand, product and partial sum fits: positive parts come first."""
        low = high = total.constant
        reach = join((0, 0), (low, high))
        products: list[tuple[bool, str, int]] = []
        for atom, coefficient in sorted(total.terms.items(), key=lambda term: term[1] < 0):
            ends = sorted(coefficient * end for end in self.intervals[atom])
            low, high = low + ends[0], high + ends[1]
            opposite = (-ends[1], -ends[0]) if coefficient < 0 else (ends[0], ends[1])
            for part in (self.intervals[atom], opposite, (abs(coefficient), abs(coefficient)), (low, high)):
                reach = join(reach, part)
            products.append((coefficient < 0, atom, abs(coefficient)))
        word = word_for(reach)
        signed = [(False, wide(literal(total.constant, word), word))] if total.constant > 0 else []
        for negative, atom, factor in products:
            times = "" if factor == 1 else f"{wide(literal(factor, word), word)} * "
            signed.append((negative, times + wide(atom, word)))
        if total.constant < 0:
            signed.append((True, wide(literal(-total.constant, word), word)))
        text = "".join(f" {'-' if negative else '+'} {part}" for negative, part in signed)
        return self.integer((low, high), text.removeprefix(" + ").lstrip())

    def integer(self, interval: Interval, text: str) -> str:
        """A name for an integer expression that lies in `interval`."""
        name = self.let("v", word_for(interval), [text])
        self.intervals[name] = interval
        return name

    def product(self, left: Sum, right: Sum) -> Sum:
        """left · right: a sum again when one side is constant."""
        if not left.terms:
            left, right = right, left
        if not right.terms:
            total = Sum(0)
            if right.constant:
                total.add(left, right.constant)
            return total
        a, b = self.value(left), self.value(right)
        corners = [p * q for p in self.intervals[a] for q in self.intervals[b]]
        interval = (min(corners), max(corners))
        word = word_for(join(join(self.intervals[a], self.intervals[b]), interval))
        return Sum(0, {self.integer(interval, f"{wide(a, word)} * {wide(b, word)}"): 1})

    def floor_div(self, argument: Sum, divisor: int) -> Sum:
        """⌊argument / divisor⌋ from C's truncating division of a number that is never negative.

        With k = ⌊least / divisor⌋ the number argument − k·divisor is ≥ 0, and its quotient is k less than the wanted.
        """
        least, most = self.range(argument)
        shift = least // divisor
        if divisor == 1:
            return argument
        if most // divisor == shift:
            return Sum(shift)
        name = self.value(Sum(argument.constant - shift * divisor, dict(argument.terms)))
        word = word_for(join(self.intervals[name], (divisor, divisor)))
        text = f"{wide(name, word)} / {wide(literal(divisor, word), word)}"
        return Sum(shift, {self.integer((0, self.intervals[name][1] // divisor), text): 1})

    def extreme(self, which: str, arguments: list[Sum]) -> Sum:
        """Fold with selects; an argument that another one always beats is left out."""
        largest = which == "max"
        ranges = [self.range(argument) for argument in arguments]
        sure = max(low for low, _ in ranges) if largest else min(high for _, high in ranges)
        names = [
            self.value(argument)
            for argument, (low, high) in zip(arguments, ranges, strict=True)
            if (high >= sure if largest else low <= sure)
        ]
        winner, *rivals = dict.fromkeys(names)
        for rival in rivals:
            a, b = self.intervals[winner], self.intervals[rival]
            interval = (max(a[0], b[0]), max(a[1], b[1])) if largest else (min(a[0], b[0]), min(a[1], b[1]))
            word = word_for(join(a, b))
            first, second = wide(winner, word), wide(rival, word)
            winner = self.integer(interval, f"{first} {'>' if largest else '<'} {second} ? {first} : {second}")
        low, high = self.intervals[winner]
        return Sum(low) if low == high else Sum(0, {winner: 1})

    # --- the region and the model -----------------------------------------------------------------------------------
    def ball(self, ball: Ball) -> str:
        """Truth of lying within the ball, for points of its box."""
        total = Sum(-ball.radius)
        for feature, (centre, weight) in enumerate(zip(ball.centre, ball.weights, strict=True)):
            if ball.norm == "l0":
                total.add(self.indicator(negated(self.test(feature, centre, centre + 1))))
            elif weight:
                total.add(self.distance(feature, centre - ball.box.low[feature]), weight)
        return self.sign("<=", total)

    def distance(self, feature: int, centre: int) -> Sum:
        """|position − centre|, both counted from the box's lower end."""
        position = self.position(feature)
        last = self.box.high[feature] - self.box.low[feature] - 1
        difference = Sum(-centre)
        difference.add(position)
        if centre <= 0:
            return difference
        if not position.terms:
            return Sum(centre)
        (name,) = position.terms
        if (centre, last) == (1, 1):
            return self.indicator(f"!{name}")
        if centre >= last:
            return Sum(0, {self.value(self.product(difference, Sum(-1))): 1})
        if centre == 1 and last == 2:
            return self.indicator(f"{name} != 1")
        word = word_for((0, last))
        shown, point = wide(name, word), wide(literal(centre, word), word)
        text = f"{shown} < {point} ? {point} - {shown} : {shown} - {point}"
        return Sum(0, {self.integer((0, max(centre, last - centre)), text): 1})

    def label_in(self, labels: tuple[int, ...]) -> str:
        """Truth of the label being one of `labels`; a set whose complement was built already is its negation."""
        wanted = frozenset(labels)
        others = tuple(label for label in range(self.labels) if label not in wanted)
        if not wanted or not others:
            return "1" if wanted else "0"
        if isinstance(self.structure, IntNetwork):
            return network_lowering.label_in(self, self.scores, wanted)
        if others in self.trees:
            return negated(self.trees[others][0])
        if labels not in self.trees:
            prefix = f"t{len(self.trees)}n" if self.trees else "n"
            self.trees[labels] = selects.evaluate(
                self.structure, self.test, lambda label: "1" if label in wanted else "0", BIT, prefix
            )
        return self.trees[labels][0]
