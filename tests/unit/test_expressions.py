"""The expression language: meaning against Python's own eval, types, names, loops, and every refusal with its hint."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quantify.errors import InputError
from quantify.ir.domain import BoolFeature, CategoricalFeature, Domain, Feature, FixedFeature, IntFeature
from quantify.ir.property import (
    Aggregate,
    And,
    Arithmetic,
    BoolExpr,
    CategoryIn,
    Compare,
    Constant,
    CountTrue,
    FeatureValue,
    LabelIn,
    Truth,
)
from quantify.properties.evaluate import truth
from quantify.properties.expressions import parse
from quantify.properties.scope import Scope
from quantify.properties.yaml import Scalar

DOMAIN = Domain(
    (
        IntFeature("a", False, -3, 4),
        FixedFeature("t", False, Fraction(0), Fraction(1, 10), 5),
        BoolFeature("b"),
        CategoricalFeature("colour", False, ("red", "green", "blue"), (3, 7, 9)),
        IntFeature("m", True, 0, 3),
        IntFeature("odd name (cm)", False, 0, 2),
        CategoricalFeature("lamp", True, ("green", "red"), (0, 1)),
    )
)
CLASSES = ("left", "right", "1")


def tree(text: str, domain: Domain = DOMAIN, **options: bool) -> BoolExpr:
    """The typed tree of an expression."""
    scope = Scope(domain, CLASSES, options.get("places_agree", True), options.get("label_allowed", True))
    return parse(Scalar("p.yaml", 7, text, text), "assert", scope)


def holds(text: str, label: int = 0, domain: Domain = DOMAIN, **values: object) -> bool:
    """Truth of an expression for one input; features that are not given are at their first value."""
    positions = []
    for feature in domain:
        wanted = values.get(feature.name, feature.shown(0))
        shown = [feature.shown(p) for p in range(feature.size)]
        positions.append(shown.index(wanted))
    numbers = [None if p == f.missing_position else f.value(p) for f, p in zip(domain, positions, strict=True)]
    return truth(tree(text, domain), numbers, positions, label)


def refused(text: str, domain: Domain = DOMAIN, **options: bool) -> str:
    with pytest.raises(InputError) as caught:
        tree(text, domain, **options)
    assert caught.value.message.startswith("p.yaml:7: assert, column "), caught.value.message
    assert caught.value.hint
    return f"{caught.value.message} — {caught.value.hint}"


# --- against Python ------------------------------------------------------------------------------------------------
# Each pair is our text and Python's, where decimals are written as Fractions; names are those of ENVIRONMENT.
Pair = tuple[str, str]
SMALL = Domain(
    (
        IntFeature("a", False, -2, 2),
        FixedFeature("t", False, Fraction(-1, 2), Fraction(1, 4), 5),
        BoolFeature("b"),
        IntFeature("c", False, 0, 1),
    )
)


def literal(number: str) -> Pair:
    return number, f"Fraction('{number}')"


NUMBERS = st.sampled_from(["0", "1", "2", "3", "0.5", "0.1", "1.25", "2e-1", ".5"]).map(literal)
LEAVES = st.one_of(
    NUMBERS, st.sampled_from(["a", "t", "c", "x[0]", "x[1]"]).map(lambda name: (name, name)), st.just(("b", "b"))
)
DIVISORS = st.sampled_from(["1", "2", "0.5", "-3", "0.1", "1.25"]).map(
    lambda n: (n, f"Fraction('{n}')") if n[0] != "-" else (n, f"-Fraction('{n[1:]}')")
)


def joined(template: str, *parts: Pair) -> Pair:
    return template.format(*(ours for ours, _ in parts)), template.format(*(python for _, python in parts))


def looped(template: str, part: Pair) -> Pair:
    """A loop whose variable differs from those of the loops inside it, as these are shorter."""
    return joined(template.replace("V", f"v{len(part[0])}"), part)


def number_grows(children: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    two = st.tuples(children, children)
    return st.one_of(
        st.tuples(st.sampled_from("+-*"), two).map(lambda p: joined("({} " + p[0] + " {})", *p[1])),
        st.tuples(st.sampled_from("+-*"), two).map(lambda p: joined("{} " + p[0] + " {}", *p[1])),
        st.tuples(st.sampled_from(["//", "%", "/"]), children, DIVISORS).map(
            lambda p: joined("(({}) " + p[0] + " ({}))", p[1], p[2])
        ),
        st.tuples(st.sampled_from(["min", "max"]), two).map(lambda p: joined(p[0] + "({}, {})", *p[1])),
        children.map(lambda p: joined("abs({})", p)),
        children.map(lambda p: joined("-{}", p)),
        children.map(lambda p: looped("sum({} * V for V in range(1, 3))", p)),
        children.map(lambda p: looped("max({} - V for V in range(3) if V != 1)", p)),
    )


ARITHMETIC = st.recursive(LEAVES, number_grows, max_leaves=5)
OPERATORS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
COMPARISONS = st.one_of(
    st.tuples(ARITHMETIC, OPERATORS, ARITHMETIC).map(lambda p: joined("{} " + p[1] + " {}", p[0], p[2])),
    st.tuples(ARITHMETIC, OPERATORS, ARITHMETIC, OPERATORS, LEAVES).map(
        lambda p: joined("{} " + p[1] + " {} " + p[3] + " {}", p[0], p[2], p[4])
    ),
    st.tuples(ARITHMETIC, st.sampled_from(["in", "not in"]), NUMBERS, LEAVES).map(
        lambda p: joined("{} " + p[1] + " ({}, {})", p[0], p[2], p[3])
    ),
    st.tuples(LEAVES, OPERATORS).map(lambda p: joined("any(x[i] " + p[1] + " {} for i in range(2))", p[0])),
    st.tuples(LEAVES, OPERATORS).map(
        lambda p: joined("all(x[i] + x[j] " + p[1] + " {} for i in range(2) for j in range(2) if i < j)", p[0])
    ),
)


def boolean_grows(children: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    two = st.tuples(children, children)
    return st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), two).map(lambda p: joined("({} " + p[0] + " {})", *p[1])),
        st.tuples(st.sampled_from(["and", "or"]), two).map(lambda p: joined("{} " + p[0] + " {}", *p[1])),
        children.map(lambda p: joined("not {}", p)),
        two.map(lambda p: joined("implies({}, {})", *p)),
        st.tuples(two, st.sampled_from(["==", "!=", "<", "<="])).map(
            lambda p: joined("(({}) " + p[1] + " ({}))", *p[0])
        ),
        st.tuples(two, OPERATORS, NUMBERS).map(lambda p: joined("count({}, {}) " + p[1] + " {}", *p[0], p[2])),
    )


CONDITIONS = st.recursive(st.one_of(COMPARISONS, st.just(("b", "b"))), boolean_grows, max_leaves=4)


def python_sum(*arguments: object) -> object:
    return sum(arguments[0]) if len(arguments) == 1 else sum(arguments)


@settings(max_examples=150, deadline=None)
@given(CONDITIONS)
def test_every_input_agrees_with_python(pair: Pair) -> None:
    ours, python = pair
    expression = tree(ours, SMALL)
    code = compile(python, "python", "eval")
    for positions in itertools.product(*(range(size) for size in SMALL.sizes)):
        values = [Fraction(feature.value(p)) for feature, p in zip(SMALL, positions, strict=True)]
        names = {
            "Fraction": Fraction,
            "x": values,
            "a": values[0],
            "t": values[1],
            "b": bool(values[2]),
            "c": values[3],
            "implies": lambda p, q: (not p) or q,
            "count": lambda *p: sum(map(bool, p)),
            "sum": python_sum,
            "min": min,
            "max": max,
            "abs": abs,
            "any": any,
            "all": all,
            "range": range,
            "__builtins__": {},
        }
        expected = bool(eval(code, names))
        assert truth(expression, values, positions, 0) is expected, (ours, values)


@pytest.mark.parametrize(
    "text",
    [
        "-7 // 2 == -4",
        "7 // -2 == -4",
        "-7 % 3 == 2",
        "7 % -3 == -2",
        "7.5 // 2 == 3",
        "-0.5 % 0.3 == 0.1",
        "0.1 + 0.2 == 0.3",
        "1e-5 == 0.00001",
        "10 == 1e1",
        "0x1F == 31",
        "-2 * -3 == 6",
        "1 - 2 - 3 == -4",
        "2 * 3 % 4 == 2",
        "1 < 2 < 3",
        "not 1 > 2",
        "not 1 == 2 and 3 == 3",
        "1 / 3 * 3 == 1",
        "1 == 1 or 1 == 2 and 1 == 3",
        "- 2 // 3 == -1",
        "1 in [1, 2]",
        "sum(i * j for i in range(3) for j in range(i)) == 2",
        "min(i % 3 for i in range(1, 6) if i % 3 > 0) == 1",
        "all(i == 0 for i in range(0))",
        "not any(i == 0 for i in range(0))",
        "sum(i for i in range(0)) == 0",
        "count(i > 1 for i in range(4)) == 2",
        "sum(1 < 2, 3 > 2) == 2",
        "True and not False",
        "true != false",
        "abs(-3) == 3",
        "max([1, 5, 2]) == 5",
        "len(x) == 7",
        "5 not in (1, 2)",
    ],
)
def test_constants_are_decided_at_once(text: str) -> None:
    assert tree(text) == Truth(True)


# --- names and types -----------------------------------------------------------------------------------------------
def test_numbers_are_decimals_taken_from_their_text() -> None:
    assert tree("t < 0.3") == Compare("<", FeatureValue(1), Constant(Fraction(3, 10)))
    assert tree("t < 0.1 + 0.2") == tree("t < 0.3")


def test_a_boolean_feature_is_a_truth_value_and_a_number() -> None:
    assert tree("b") == Compare("==", FeatureValue(2), Constant(Fraction(1)))
    assert holds("not b", b=0)
    assert holds("b + a == 0", b=1, a=-1)
    assert holds("b == True", b=1)
    assert holds("b == (a > 0)", b=1, a=1)
    assert not holds("b == (a > 0)", b=1, a=0)


def test_labels_are_compared_as_text() -> None:
    assert tree("label == 'left'") == LabelIn((0,))
    assert tree("label != 'left'") == LabelIn((1, 2))
    assert tree("label == 1") == tree("label == '1'") == tree("1 == label") == LabelIn((2,))
    assert tree("label in ('right', 1)") == LabelIn((1, 2))
    assert tree("label not in ['left']") == LabelIn((1, 2))
    assert tree("label in ('left', 'right', '1')") == Truth(True)
    assert tree("any(label == i for i in range(1, 2))") == LabelIn((2,))
    assert tree("label == 0 + 1") == LabelIn((2,))


def test_categories_are_compared_by_name() -> None:
    assert tree("colour == 'green'") == CategoryIn(3, (1,))
    assert tree("'green' != colour") == CategoryIn(3, (0, 2))
    assert tree("colour in ('blue', 'red')") == CategoryIn(3, (0, 2))
    assert tree("colour not in ('blue', 'red')") == CategoryIn(3, (1,))
    assert tree("colour in ('blue', 'red', 'green')") == Truth(True)


def test_two_categories_are_equal_when_their_names_are() -> None:
    assert holds("colour == lamp", colour="red", lamp="red")
    assert not holds("colour == lamp", colour="red", lamp="green")
    assert not holds("colour == lamp", colour="red", lamp=None)
    assert holds("colour != lamp", colour="blue", lamp="green")
    assert not holds("colour != lamp", colour="blue", lamp=None)
    assert not holds("colour != lamp", colour="green", lamp="green")


def test_numbers_name_categories_only_when_name_and_code_are_one() -> None:
    domain = Domain((CategoricalFeature("c", False, ("0", "1"), (0, 1)), CategoricalFeature("d", False, ("1",), (5,))))
    assert tree("c == 1", domain) == CategoryIn(0, (1,))
    assert "quote" in refused("d == 1", domain)


@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "==", "!="])
def test_a_comparison_with_a_missing_value_is_false(op: str) -> None:
    assert not holds(f"m {op} 1", m=None)
    assert not holds(f"0 * m {op} 0", m=None)
    assert holds(f"not m {op} 1", m=None)


def test_missing_values_elsewhere() -> None:
    assert holds("is_missing(m)", m=None)
    assert not holds("is_missing(m)", m=0)
    assert tree("is_missing(a)") == Truth(False)
    assert holds("is_missing(lamp)", lamp=None)
    assert not holds("m in (0, 1)", m=None)
    assert not holds("m not in (0, 1)", m=None)
    assert not holds("lamp != 'red'", lamp=None)
    assert not holds("lamp not in ('red',)", lamp=None)
    assert holds("count(m == 0, m != 0) == 0", m=None)


def test_odd_names() -> None:
    assert tree('feature("odd name (cm)") > 1') == Compare(">", FeatureValue(5), Constant(Fraction(1)))
    clash = Domain((BoolFeature("label"), BoolFeature("x"), BoolFeature("min"), BoolFeature("transitive")))
    assert tree("feature('label') and feature('x') and min and transitive", clash) == And(
        tuple(Compare("==", FeatureValue(i), Constant(Fraction(1))) for i in range(4))
    )
    assert tree("label == 1", clash) == LabelIn((2,))


def test_places() -> None:
    assert tree("x[1] > 0") == tree("t > 0")
    assert tree("all(x[2 * i] == 0 for i in range(1) if i == 0)") == tree("a == 0")


RELATION = Domain(tuple(BoolFeature(f"r_{i}_{j}") for i in range(3) for j in range(3)), 3)


def test_relations() -> None:
    reflexive = tree("reflexive", RELATION)
    assert tree("reflexive()", RELATION) == reflexive
    assert tree("all(r[i][i] for i in range(n))", RELATION) == reflexive
    assert tree("r_0_0 and r_1_1 and r_2_2", RELATION) == reflexive
    squares = Domain(tuple(BoolFeature(f"f{i}") for i in range(9)))
    assert tree("reflexive", squares) == reflexive
    assert tree("not transitive and label == 'left'", squares)
    by_hand = tree(
        "all(implies(r[i][j] and r[j][k], r[i][k]) for i in range(n) for j in range(n) for k in range(n))", RELATION
    )
    library = tree("transitive", RELATION)
    for bits in itertools.product((0, 1), repeat=9):
        assert truth(by_hand, bits, bits, 0) == truth(library, bits, bits, 0)
    assert holds("sum(r[0]) == 2 and count(r[0]) == 2 and any(r[0])", domain=RELATION, r_0_1=1, r_0_2=1)


def test_long_sums_stay_flat() -> None:
    pixels = Domain(tuple(IntFeature(f"p{i}", False, 0, 255) for i in range(784)))
    plain = tree(" + ".join(f"p{i}" for i in range(784)) + " > 5000", pixels)
    looped = tree("sum(x[i] for i in range(784)) > 5000", pixels)
    assert plain == looped == tree("sum(x) > 5000", pixels)
    assert plain == Compare(">", Aggregate("sum", tuple(FeatureValue(i) for i in range(784))), Constant(Fraction(5000)))


def test_comparisons_inside_sums_are_counted() -> None:
    total = Arithmetic("+", CountTrue((tree("a > 0"),)), CountTrue((tree("t > 0"),)))
    assert tree("sum(x[i] > 0 for i in range(2)) == 1") == Compare("==", total, Constant(Fraction(1)))
    assert tree("(a > 0) + (t > 0) == 1") == Compare("==", total, Constant(Fraction(1)))


def test_text_of_several_lines() -> None:
    assert tree("a > 0\n  and t < 0.3\n") == tree("a > 0 and t < 0.3")
    with pytest.raises(InputError, match=r"p\.yaml:9: assert, column 5: the name 'u' is unknown"):
        tree("a > 0\nand u < 0.3\n")


# --- refusals ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "words"),
    [
        # names
        ("colur == 'red'", ["'colur' is unknown", "did you mean 'colour'?"]),
        ("odd_name > 1", ["unknown"]),
        ("odd name (cm) > 1", ["unexpected 'name'", 'feature("…")']),
        ("colour == green", ["'green' is unknown", "in quotes: 'green'"]),
        ("label == left", ["'left' is unknown", "label == 'left'"]),
        ("feature('odd name') > 1", ["did you mean 'odd name (cm)'?"]),
        ("label == 'lefft'", ["no label 'lefft'", "did you mean 'left'?", "'right'"]),
        ("label == 2", ["no label '2'"]),
        ("label == 1.0", ["no label '1.0'", "did you mean '1'?"]),
        ("colour == 'rde'", ["no value 'rde'", "did you mean 'red'?"]),
        ("mx(a, t) > 1", ["function 'mx' is unknown", "did you mean 'max'?"]),
        ("transitive", ["all features must be boolean"]),
        ("transitve()", ["did you mean 'transitive'?"]),
        ("score[0] > 1", ["networks only"]),
        ("x[7] == 1", ["out of range", "between 0 and 6"]),
        ("x[-1] == 1", ["out of range"]),
        ("x[0.5] == 1", ["must be an integer"]),
        ("x[a] == 1", ["must be a constant"]),
        ("a[0] == 1", ["has no elements"]),
        ("n == 3", ["'n' is unknown", "len(x)"]),
        # types
        ("label < 'left'", ["no order"]),
        ("label", ["truth value is needed", "label == "]),
        ("label + 1 == 2", ["number is needed here, not a label"]),
        ("label == a", ["compared with constants"]),
        ("label in 'left'", ["list is needed"]),
        ("label in ()", ["list is needed"]),
        ("colour", ["truth value is needed"]),
        ("colour > 'red'", ["no order"]),
        ("colour == 3", ["no value '3'", "'red'"]),
        ("colour == a", ["compared with a number"]),
        ("colour + 1 > 2", ["not a category"]),
        ("a", ["truth value is needed here, not a number", "give 'a' type: bool"]),
        ("a and b", ["truth value is needed"]),
        ("a == 'red'", ["not a text"]),
        ("'red'", ["truth value is needed"]),
        ("x == 1", ["not a list"]),
        ("x[0] // a == 1", ["must be a constant"]),
        ("a / t == 1", ["must be a constant"]),
        ("a // 0 == 1", ["division by zero"]),
        ("a % (1 - 1) == 1", ["division by zero"]),
        ("min() == 1", ["needs arguments"]),
        ("min(a for i in range(0)) == 1", ["of nothing"]),
        ("abs(a, t) == 1", ["takes 1 arguments, not 2"]),
        ("implies(b) ", ["takes 2 arguments"]),
        ("is_missing(a + 1)", ["asks about one feature"]),
        ("is_missing('m')", ["asks about one feature"]),
        ("feature(a) > 1", ["name in quotes"]),
        ("range(3) == 1", ["belongs into a loop"]),
        ("max", ["is a function"]),
        # loops
        ("all(x[i] > 0 for i in range(a))", ["must be a constant"]),
        ("all(x[i] > 0 for i in x)", ["range(…) only"]),
        ("all(x[i] > 0 for i in range(2) if a > 0)", ["numbers and loop variables only", "implies"]),
        ("all(a > 0 for a in range(2))", ["already has a meaning"]),
        ("all(x[i] > 0 for i in range(2) for i in range(2))", ["already has a meaning"]),
        ("all(i > 0 for i in range(0, 5, 0))", ["step of 0"]),
        ("all(i > 0 for i in range())", ["takes 1 to 3"]),
        ("all(i > j for i in range(999) for j in range(10000000))", ["unfold"]),
        # syntax
        ("a = 1", ["unexpected '='", "write =="]),
        ("a > 0 && b", ["write and"]),
        ("a > 0 | b", ["write or"]),
        ("!b", ["write not"]),
        ("a ** 2 > 1", ["write x * x"]),
        ("a > 0 if b else a < 0", ["implies"]),
        ("a is None", ["=="]),
        ("(lambda: 1)()", ["not in the language"]),
        ("a.real > 0", ["feature("]),
        ("x[0:2] == 1", ["slices"]),
        ("a > 0 # and b", ["comment"]),
        ("colour == 'red", ["does not end"]),
        ("a > 010", ["begins with a zero"]),
        ("a > 1_000", ["no number"]),
        ("a > 1j", ["no number"]),
        ("a > 1e999", ["too large"]),
        ("a > ", ["ends too early"]),
        ("a > 0)", ["unexpected ')'"]),
        ("a) or (b", ["unexpected ')'"]),
        ("", ["ends too early"]),
        ("f'{a}' == 1", ["unexpected"]),
        ("__import__('os')", ["function '__import__' is unknown"]),
        ("a > $", ["not in the language"]),
        ("a not b", ["'in' after 'not'"]),
        (r"colour == '\x41'", ["escape"]),
        ("(" * 60 + "b" + ")" * 60, ["nested too deeply"]),
        ("not " * 60 + "b", ["nested too deeply"]),
        ("-" * 60 + "1 > 0", ["nested too deeply"]),
        ("b and " * 30_000 + "b", ["longer than"]),
        (" * ".join(["a"] * 80) + " > 0", ["factors"]),
    ],
)
def test_refusals_explain_themselves(text: str, words: list[str]) -> None:
    message = refused(text)
    for word in words:
        assert word in message, message


def test_deep_but_allowed_nesting_works() -> None:
    assert tree("(" * 45 + "b" + ")" * 45) == tree("b")


def test_x_needs_the_order_of_the_model() -> None:
    assert "ambiguous" in refused("x[0] > 1", places_agree=False)
    assert tree("a > 1", places_agree=False) == tree("a > 1")


def test_a_ground_truth_may_not_use_the_label() -> None:
    assert "ground truth cannot use" in refused("label == 'left'", label_allowed=False)


def test_an_expression_must_be_a_scalar() -> None:
    with pytest.raises(InputError, match="must be an expression, not nothing"):
        parse(Scalar("p.yaml", 3, None, ""), "assume", Scope(DOMAIN, CLASSES, True))


def test_features_of_every_kind_have_a_first_value() -> None:
    assert all(isinstance(feature, Feature) and feature.size > 1 for feature in DOMAIN)
