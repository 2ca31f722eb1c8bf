"""Text of an expression and a scope in, a typed tree of `quantify.ir.property` out: names resolved, loops unrolled.

The text is parsed, never evaluated. Every part has a type (number, truth value, category, the label, text, list);
this module inserts the conversions that are meant and explains the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import NoReturn, assert_never

from quantify.ir import property as tree
from quantify.ir.property import (
    BoolExpr,
    Constant,
    CountTrue,
    FeatureValue,
    NumberExpr,
    ScoreValue,
    Truth,
)
from quantify.properties import syntax, terms
from quantify.properties.comparisons import compare_pair, membership
from quantify.properties.fields import describe
from quantify.properties.library import LIBRARY
from quantify.properties.scope import FUNCTIONS, RANKS, RESERVED, Scope
from quantify.properties.syntax import ExpressionError, Syntax
from quantify.properties.values import BOOLEANS, Category, Label, Plain, Rank, Value, Vector, Word, type_name
from quantify.properties.yaml import Node, Scalar, fail, suggest

MAX_STEPS = 1_000_000
"""Parts resolved in one expression, loops unrolled."""


def parse(node: Node, what: str, scope: Scope) -> BoolExpr:
    """The truth value that the scalar `node` writes; `what` names it in messages.

    Raises:
        InputError: Anything in it has no meaning here, with file, line and column.
    """
    if not isinstance(node, Scalar) or node.value is None:
        fail(node, f"{what} must be an expression, not {describe(node)}", 'write it in quotes: "a < 3 and b"')
    try:
        return _Resolver(scope).condition(syntax.parse(node.text), {})
    except ExpressionError as error:
        before = node.text[: error.at]
        # A text with line breaks is a block scalar: it starts on the line after its key.
        line = node.line + ("\n" in node.text) + before.count("\n")
        column = error.at - (before.rfind("\n") + 1) + 1
        fail(
            Scalar(node.file, line, None, ""),
            f"{what}, column {column}: {error.message}: {_excerpt(node.text, error.at)}",
            error.hint,
        )


def _excerpt(text: str, at: int) -> str:
    """The part of the text around `at`, on one line."""
    start = max(0, at - 25)
    part = " ".join(text[start : at + 35].split())
    return f"{'…' if start else ''}{part}{'…' if at + 35 < len(text.rstrip()) else ''}"


def _wrong(at: int, message: str, hint: str) -> NoReturn:
    raise ExpressionError(at, message, hint)


Loops = Mapping[str, int]


class _Resolver:
    """Syntax to typed values; `loops` holds the loop variables."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.steps = 0
        self.features: Vector | None = None

    # --- conversions ---
    def condition(self, part: Syntax, loops: Loops) -> BoolExpr:
        """`part` as a truth value."""
        return self.as_condition(self.resolve(part, loops), part.at)

    def as_condition(self, value: Value, at: int) -> BoolExpr:
        """A truth value; a boolean feature is one too."""
        if isinstance(value, FeatureValue) and self.scope.is_boolean(value.feature):
            return terms.is_true(value.feature)
        if isinstance(value, BOOLEANS):
            return value
        hints = {
            "number": "compare it with something: x != 0",
            "label": "compare it with a class: label == '…'",
            "category": "compare it with one of its values: colour == 'red'",
            "text": "compare something with it: label == '…'",
            "list": "use all(…), any(…) or count(…)",
        }
        kind = type_name(value)
        if isinstance(value, FeatureValue):
            name = self.scope.feature(value.feature).name
            hints["number"] = f"compare it with something, or give {name!r} type: bool in the domain if it is 0 or 1"
        _wrong(at, f"a truth value is needed here, not a {kind}", hints[kind])

    def number(self, part: Syntax, loops: Loops) -> NumberExpr:
        """`part` as a number."""
        return self.as_number(self.resolve(part, loops), part.at)

    def as_number(self, value: Value, at: int) -> NumberExpr:
        """A number; a truth value counts 0 or 1."""
        if isinstance(value, Plain):
            return terms.constant(value.value)
        if isinstance(value, Truth):
            return terms.constant(int(value.value))
        if isinstance(value, BOOLEANS):
            return CountTrue((value,))
        if isinstance(value, Label | Rank | Category | Word | Vector):
            hints = {
                "label": "labels are compared with == and != only",
                "category": "categories are compared with their names: colour == 'red'",
                "text": "text stands beside label or a categorical feature, with == or != between",
                "list": "take one element, such as x[0], or sum(…), min(…), max(…)",
            }
            kind = type_name(value)
            _wrong(at, f"a number is needed here, not a {kind}", hints[kind])
        return value

    def constant(self, part: Syntax, loops: Loops, what: str) -> Fraction:
        """`part` as a number that depends on no feature."""
        value = self.number(part, loops)
        if not isinstance(value, Constant):
            _wrong(part.at, f"{what} must be a constant", "use numbers and loop variables only")
        return value.value

    def integer(self, part: Syntax, loops: Loops, what: str) -> int:
        """`part` as a constant integer."""
        value = self.constant(part, loops, what)
        if value.denominator != 1:
            _wrong(part.at, f"{what} must be an integer, not {value}", "write an integer")
        return value.numerator

    # --- parts ---
    def resolve(self, part: Syntax, loops: Loops) -> Value:
        """The typed value of `part`."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            _wrong(part.at, f"its loops unfold into more than {MAX_STEPS} parts", "loop over fewer values")
        if isinstance(part, syntax.Name):
            return self.name(part, loops)
        if isinstance(part, syntax.Literal):
            return Plain(part.value, part.text)
        if isinstance(part, syntax.Text):
            return Word(part.value)
        if isinstance(part, syntax.Call):
            return self.call(part, loops)
        if isinstance(part, syntax.Item):
            return self.item(part, loops)
        if isinstance(part, syntax.Group):
            return Vector(tuple(self.resolve(item, loops) for item in part.items))
        if isinstance(part, syntax.Comprehension):
            return Vector(tuple(self.unrolled(part, loops)))
        return self.operation(part, loops)

    def operation(self, part: syntax.Operation, loops: Loops) -> Value:
        """The typed value of an operator with its operands."""
        if isinstance(part, syntax.Comparison):
            return self.comparison(part, loops)
        if isinstance(part, syntax.Negation):
            return terms.negation(self.condition(part.argument, loops))
        if isinstance(part, syntax.Junction):
            join = terms.all_of if part.word == "and" else terms.any_of
            # Every argument is checked, also those that a constant beside them makes irrelevant.
            return join([self.condition(argument, loops) for argument in part.arguments])
        if isinstance(part, syntax.Minus):
            inner = self.resolve(part.argument, loops)
            if isinstance(inner, Plain):
                return Plain(-inner.value, f"-{inner.text}")
            return terms.negative(self.as_number(inner, part.argument.at))
        if isinstance(part, syntax.Sum):
            values = [(minus, self.number(term, loops)) for minus, term in part.terms]
            return self._folded(terms.total(terms.negative(value) if minus else value for minus, value in values))
        if isinstance(part, syntax.Product):
            return self._folded(self.product(part, loops))
        assert_never(part)

    @staticmethod
    def _folded(value: NumberExpr) -> Value:
        """A constant as a plain number, so that `label == i + 1` works in loops."""
        if isinstance(value, Constant) and value.value.denominator == 1:
            return Plain(value.value.numerator, str(value.value))
        return value

    def name(self, part: syntax.Name, loops: Loops) -> Value:
        """A bare name: loop variable, reserved word, feature, constant, library predicate, in this order."""
        name, scope = part.name, self.scope
        if name in loops:
            return Plain(loops[name], str(loops[name]))
        if name == "label":
            self.answers_allowed(part.at, "label")
            return Label()
        if name == "x":
            return self.all_features(part.at)
        if name == "score":
            return self.scores(part.at)
        if name in RANKS and scope.scores:
            return self.rank(part.at, name)
        place = scope.domain.index(name)
        if place is not None:
            return self.feature(place)
        if name in ("True", "true", "False", "false"):
            return Truth(name in ("True", "true"))
        if name in LIBRARY:
            return self.predicate(part.at, name)
        if name in ("n", "r") and scope.nodes is not None:
            return Plain(scope.nodes, str(scope.nodes)) if name == "n" else self.relation(scope.nodes)
        if name in FUNCTIONS:
            _wrong(part.at, f"{name} is a function", f"give it arguments: {name}(…)")
        ending, hint = scope.suggestion(name)
        if name == "n":
            hint = "write the number itself, or len(x) for the number of features"
        _wrong(part.at, f"the name {name!r} is unknown{ending}", hint)

    def feature(self, place: int) -> Value:
        """A feature as a value."""
        return Category(place) if self.scope.is_category(place) else FeatureValue(place)

    def relation(self, nodes: int) -> Vector:
        """The adjacency matrix as a list of rows."""
        rows = ((self.feature(i * nodes + j) for j in range(nodes)) for i in range(nodes))
        return Vector(tuple(Vector(tuple(row)) for row in rows))

    def all_features(self, at: int) -> Vector:
        """`x`: the features in order."""
        if not self.scope.places_agree:
            _wrong(
                at,
                "x[i] is ambiguous here: the domain lists the features in another order than the model",
                "use the names of the features, or list them in the model's order",
            )
        if self.features is None:
            self.features = Vector(tuple(map(self.feature, range(len(self.scope.domain.features)))))
        return self.features

    def scores(self, at: int) -> Vector:
        """`score`: the network's scores in order."""
        if not self.scope.scores:
            _wrong(at, "score[i] exists for networks only, and this model is a decision tree", "use label instead")
        self.answers_allowed(at, "scores")
        return Vector(tuple(map(ScoreValue, range(self.scope.scores))))

    def rank(self, at: int, name: str) -> Rank:
        """`lowest` or `highest`."""
        self.answers_allowed(at, "scores")
        if self.scope.scores == 1:
            _wrong(at, f"there is one score, so {name} says nothing", "use label, or compare score[0] with a number")
        return Rank("lowest" if name == "lowest" else "highest")

    def answer_call(self, part: syntax.Call) -> Value:
        """lowest() and highest(), which their names alone say as well; score(…) is explained."""
        if part.function == "score":
            self.scores(part.at)
            _wrong(part.at, "score is a list", "write score[0]")
        self.arity(part, 0)
        return self.rank(part.at, part.function)

    def answers_allowed(self, at: int, what: str) -> None:
        """Refuse the model's answers where the truth is described."""
        if not self.scope.label_allowed:
            _wrong(at, f"a ground truth cannot use the model's {what}", "describe the truth by features alone")

    def predicate(self, at: int, name: str) -> BoolExpr:
        """A predicate of the library over the whole domain."""
        nodes = self.scope.nodes
        if nodes is None:
            _wrong(
                at,
                f"{name} is about relations: all features must be boolean, and their number a square",
                "use domain: {relation: {nodes: 4}}",
            )
        self.steps += nodes**3
        return LIBRARY[name](nodes)

    def item(self, part: syntax.Item, loops: Loops) -> Value:
        """base[index]."""
        base = self.resolve(part.base, loops)
        if not isinstance(base, Vector):
            _wrong(part.at, f"a {type_name(base)} has no elements", "x[i] is the i-th feature, r[i][j] relates i to j")
        if isinstance(part.base, syntax.Name) and part.base.name == "score" and isinstance(part.index, syntax.Text):
            return self.named_score(part.index)
        index = self.integer(part.index, loops, "an index")
        if not 0 <= index < len(base.values):
            last = len(base.values) - 1
            _wrong(part.index.at, f"the index {index} is out of range", f"it must lie between 0 and {last}")
        element: Value = base.values[index]
        return element

    def named_score(self, label: syntax.Text) -> Value:
        """score['label']."""
        index = self.scope.class_index(label.value)
        if index is None or index >= self.scope.scores:
            close = suggest(label.value, self.scope.classes)
            _wrong(label.at, f"there is no score {label.value!r}{close}", f"scores: 0 to {self.scope.scores - 1}")
        return ScoreValue(index)

    def product(self, part: syntax.Product, loops: Loops) -> NumberExpr:
        """Factors, divisions and remainders from left to right."""
        value = self.number(part.first, loops)
        for op, right in part.rest:
            if op == "*":
                value = terms.product(value, self.number(right, loops))
                continue
            divisor = self.constant(right, loops, f"the right side of {op}")
            if divisor == 0:
                _wrong(right.at, "division by zero", "divide by a constant other than 0")
            if op == "/":
                value = terms.product(value, Constant(1 / divisor))
            else:
                value = terms.floor_divide(value, divisor) if op == "//" else terms.modulo(value, divisor)
        return value

    def comparison(self, part: syntax.Comparison, loops: Loops) -> BoolExpr:
        """A chain of comparisons: each must hold."""
        results: list[BoolExpr] = []
        left, at = self.resolve(part.first, loops), part.first.at
        for op, operand in part.rest:
            right = self.resolve(operand, loops)
            if op in ("in", "not in"):
                results.append(membership(self, op, left, right, at, operand.at))
            else:
                results.append(compare_pair(self, op, left, right, at, operand.at))
            left, at = right, operand.at
        return terms.all_of(results)

    # --- calls ---
    def call(self, part: syntax.Call, loops: Loops) -> Value:
        """function(arguments)."""
        name, arguments = part.function, part.arguments
        if name in LIBRARY:
            self.arity(part, 0)
            return self.predicate(part.at, name)
        if name == "feature":
            return self.named_feature(part)
        if name == "score" or (name in RANKS and self.scope.scores):
            return self.answer_call(part)
        if name == "range":
            _wrong(part.at, "range(…) belongs into a loop", "write for i in range(n)")
        if name not in FUNCTIONS:
            close = suggest(name, [*FUNCTIONS, *LIBRARY])
            _wrong(part.at, f"the function {name!r} is unknown{close}", f"functions: {', '.join(FUNCTIONS)}")
        if name == "implies":
            self.arity(part, 2)
            return terms.implies(self.condition(arguments[0], loops), self.condition(arguments[1], loops))
        if name == "is_missing":
            return self.is_missing(part, loops)
        if name == "len":
            self.arity(part, 1)
            vector = self.resolve(arguments[0], loops)
            if not isinstance(vector, Vector):
                _wrong(part.at, "len(…) needs a list", "len(x) is the number of features")
            return Plain(len(vector.values), str(len(vector.values)))
        if name == "abs":
            self.arity(part, 1)
            return self._folded(terms.absolute(self.number(arguments[0], loops)))
        values = self.spread(part, loops)
        if name in ("all", "any"):
            return (terms.all_of if name == "all" else terms.any_of)([self.as_condition(v, at) for v, at in values])
        if name == "count":
            return self._folded(terms.how_many([self.as_condition(v, at) for v, at in values]))
        numbers = [self.as_number(v, at) for v, at in values]
        if name == "sum":
            return self._folded(terms.total(numbers))
        if not numbers:
            _wrong(part.at, f"{name} of nothing", "its loop has no element: check range(…) and if")
        return self._folded(terms.extreme("min" if name == "min" else "max", numbers))

    def spread(self, part: syntax.Call, loops: Loops) -> list[tuple[Value, int]]:
        """The arguments with their offsets; one list argument stands for its elements."""
        if not part.arguments:
            _wrong(part.at, f"{part.function}() needs arguments", f"write {part.function}(… for i in range(n))")
        values = [(self.resolve(argument, loops), argument.at) for argument in part.arguments]
        if len(values) == 1 and isinstance(values[0][0], Vector):
            return [(value, values[0][1]) for value in values[0][0].values]
        return values

    def arity(self, part: syntax.Call, count: int) -> None:
        """Refuse another number of arguments."""
        if len(part.arguments) != count:
            given = len(part.arguments)
            _wrong(part.at, f"{part.function} takes {count} arguments, not {given}", "check the brackets and commas")

    def named_feature(self, part: syntax.Call) -> Value:
        """feature("odd name")."""
        self.arity(part, 1)
        argument = part.arguments[0]
        if not isinstance(argument, syntax.Text):
            _wrong(argument.at, "feature(…) takes a name in quotes", 'write feature("sepal length (cm)")')
        place = self.scope.domain.index(argument.value)
        if place is None:
            names = [feature.name for feature in self.scope.domain]
            ending = suggest(argument.value, names)
            _wrong(argument.at, f"there is no feature {argument.value!r}{ending}", self.scope.suggestion("")[1])
        return self.feature(place)

    def is_missing(self, part: syntax.Call, loops: Loops) -> BoolExpr:
        """is_missing(f)."""
        self.arity(part, 1)
        value = self.resolve(part.arguments[0], loops)
        if not isinstance(value, FeatureValue | Category):
            _wrong(part.at, "is_missing(…) asks about one feature", "give it the name of a feature")
        return tree.IsMissing(value.feature) if self.scope.feature(value.feature).missing else terms.FALSE

    # --- loops ---
    def unrolled(self, part: syntax.Comprehension, loops: Loops) -> Iterator[Value]:
        """The elements of a comprehension."""
        for inner in self.rounds(part.clauses, loops):
            yield self.resolve(part.element, inner)

    def rounds(self, clauses: tuple[syntax.For | Syntax, ...], loops: Loops) -> Iterator[Loops]:
        """The loop variables of each round."""
        if not clauses:
            yield loops
            return
        clause, rest = clauses[0], clauses[1:]
        if not isinstance(clause, syntax.For):
            holds = self.condition(clause, loops)
            if not isinstance(holds, Truth):
                _wrong(
                    clause.at,
                    "the if of a loop may use numbers and loop variables only",
                    "inside all(…) write implies(condition, …), inside any(…) or count(…) write condition and …",
                )
            if holds.value:
                yield from self.rounds(rest, loops)
            return
        name = clause.variable
        taken = name in RESERVED or name in loops or self.scope.domain.index(name) is not None
        if taken:
            _wrong(clause.at, f"the loop variable {name!r} already has a meaning", "choose another name for it")
        values = self.range(clause, loops)
        self.steps += len(values)
        if self.steps > MAX_STEPS:
            _wrong(clause.at, f"its loops unfold into more than {MAX_STEPS} parts", "loop over fewer values")
        for value in values:
            yield from self.rounds(rest, {**loops, name: value})

    def range(self, clause: syntax.For, loops: Loops) -> range:
        """The values of a loop variable."""
        bounds = [self.integer(argument, loops, "a bound of range(…)") for argument in clause.arguments]
        if not 1 <= len(bounds) <= 3:
            _wrong(clause.at, f"range takes 1 to 3 arguments, not {len(bounds)}", "write range(n) or range(start, end)")
        if len(bounds) == 3 and bounds[2] == 0:
            _wrong(clause.at, "range with a step of 0", "use another step")
        return range(*bounds)
