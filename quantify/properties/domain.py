"""The `domain:` section of a property file in, a Domain of finite features out, every grid checked.

```yaml
domain:
  default: {type: int, min: 0, max: 255}        # optional: keys that features leave out
  features:
    - {name: rho, min: 250, max: 400}
    - {name: theta, type: fixed, min: 0.2, max: 0.4, step: 0.001}
    - {name: ratio, type: float32, min: -1, max: 1, missing: true}
    - {name: colour, type: categorical, values: [red, green]}          # the model sees 0, 1
    - {name: size, type: categorical, values: {small: 3, large: 7}}    # the model sees 3, 7
    - {name: shape, type: categorical, values: [disc, ring], onehot: [shape_disc, shape_ring]}
    - {name: "px_{i}", count: 784}                                     # px_0 … px_783
```
`domain: {relation: {nodes: 4}}` stands for boolean features r_0_0 … r_3_3, `domain: {default: {…}}` without
`features` gives every column of the model the same grid, and `domain: {from: data.csv}` is read by `fromdata`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from quantify.ir.domain import (
    BoolFeature,
    CategoricalFeature,
    Domain,
    Feature,
    FixedFeature,
    Float32Feature,
    IntFeature,
    Number,
    float32_from_key,
    float32_key,
    type_names,
)
from quantify.ir.model import Model
from quantify.properties import yaml
from quantify.properties.fields import Fields, boolean, choice, describe, integer, items, number, text
from quantify.properties.yaml import Node, Scalar, Sequence, fail, integral

FLOAT32_MAX = Fraction(float32_from_key(0x7F7FFFFF))
FLOAT32_OVERFLOW = Fraction(2**128 - 2**103 - 1)
"""Largest number that rounds to a finite float32; such a bound rounds inward, as any other."""
MAX_GRID = 2**62
MAX_FEATURES = 1_000_000
MAX_NODES = 64

FEATURE_KEYS = ("name", "type", "min", "max", "step", "values", "onehot", "missing", "count")
_KEYS_OF_TYPE = {
    "int": {"min", "max"},
    "bool": set[str](),
    "categorical": {"values", "onehot"},
    "fixed": {"min", "max", "step"},
    "float32": {"min", "max"},
}
_EXAMPLES = {
    "int": "{name: age, type: int, min: 0, max: 120}",
    "bool": "{name: smoker, type: bool}",
    "categorical": "{name: colour, type: categorical, values: [red, green]}",
    "fixed": "{name: theta, type: fixed, min: 0.2, max: 0.4, step: 0.001}",
    "float32": "{name: ratio, type: float32, min: -1, max: 1}",
}


@dataclass(frozen=True, slots=True)
class BuiltDomain:
    """A domain, and for each feature the node that defines it (for messages)."""

    domain: Domain
    nodes: tuple[Node, ...]
    notes: tuple[str, ...] = ()
    source: str = ""
    """The data file that ranges were taken from."""


def build(node: Node, model: Model, base: Path) -> BuiltDomain:
    """The domain that the section describes; relative paths start from `base`.

    Raises:
        InputError: Anything in it cannot be used.
    """
    fields = Fields(node, "the domain", ("features", "default", "relation", "from", "label", "drop", "header"))
    alone = {"relation": {"relation"}, "from": {"from", "label", "drop", "features", "header"}}
    for key, allowed in alone.items():
        if key in fields:
            for other in ("features", "default", "relation", "from", "label", "drop", "header"):
                if other in fields and other not in allowed:
                    fail(node, f"the domain cannot have both {key!r} and {other!r}", f"keep {key!r} or {other!r}")
    if "relation" in fields:
        return _relation(fields.need("relation", ""))
    if "from" in fields:
        from quantify.properties import fromdata  # reads files and needs this module

        return fromdata.build(fields, model, base)
    for key in ("label", "drop", "header"):
        if key in fields:
            fail(node, f"the key {key!r} belongs to a domain taken from a file", "add from: data.csv, or remove it")
    return _listed(fields, model)


def _listed(fields: Fields, model: Model) -> BuiltDomain:
    default = _default(fields.get("default"))
    if "features" not in fields:
        if not default:
            fields.need("features", f"list the features, such as - {_EXAMPLES['int']}")
        place = fields.need("default", "")
        names = model.column_names or tuple(f"x{i}" for i in range(model.columns))
        pairs = [(feature(dict(default), name, place), place) for name in names]
    else:
        node = fields.need("features", f"list the features, such as - {_EXAMPLES['int']}")
        pairs = [pair for entry in items(node, "features") for pair in _entry(entry, default)]
        if not pairs:
            fail(node, "the list of features is empty", f"list at least one, such as {_EXAMPLES['int']}")
    check_names(pairs)
    return BuiltDomain(Domain(tuple(f for f, _ in pairs)), tuple(n for _, n in pairs))


def _default(node: Node | None) -> dict[str, Node]:
    if node is None:
        return {}
    allowed = [key for key in FEATURE_KEYS if key not in ("name", "count", "onehot")]
    fields = Fields(node, "the default of the features", allowed)
    return {key: fields.need(key, "") for key in allowed if key in fields}


def _entry(entry: Node, default: Mapping[str, Node]) -> list[tuple[Feature, Node]]:
    """The features of one entry of the list: one, or `count` of them."""
    if isinstance(entry, Scalar):
        if not default:
            fail(entry, f"the feature {entry.text!r} has no type", f"write it as {_EXAMPLES['int']}, or add default:")
        return [(feature(dict(default), text(entry, "the name of a feature"), entry), entry)]
    fields = Fields(entry, "a feature", FEATURE_KEYS)
    name = text(fields.need("name", f"write it as {_EXAMPLES['int']}"), "the name of a feature")
    own = {key: fields.need(key, "") for key in FEATURE_KEYS if key in fields}
    count_node = own.pop("count", None)
    keys = merged(own, default)
    if count_node is None:
        return [(feature(keys, name, entry), entry)]
    count = integer(count_node, "count")
    if not 1 <= count <= MAX_FEATURES:
        fail(count_node, f"count must lie between 1 and {MAX_FEATURES}, not {count}", "write how many there are")
    if "{i}" not in name:
        fail(entry, f"{count} features cannot all be called {name!r}", 'put {i} into the name, such as "px_{i}"')
    if "onehot" in own:
        fail(entry, "onehot and count do not go together", "list these features one by one")
    return [(feature(keys, name.replace("{i}", str(i)), entry), entry) for i in range(count)]


def merged(own: Mapping[str, Node], default: Mapping[str, Node]) -> dict[str, Node]:
    """A feature's own keys over the default ones; a default that does not suit the feature's own type is left out."""
    keys = {**default, **own}
    kind = keys.get("type")
    if isinstance(kind, Scalar) and kind.text in _KEYS_OF_TYPE:
        suits = _KEYS_OF_TYPE[kind.text] | {"name", "type", "missing"}
        keys = {key: node for key, node in keys.items() if key in own or key in suits}
    return keys


def check_names(pairs: Iterable[tuple[Feature, Node]]) -> None:
    """Refuse two features, or a feature and a onehot column, of one name.

    Raises:
        InputError: A name that is there twice, with both lines.
    """
    seen: dict[str, int] = {}
    for entry, node in pairs:
        for name in (entry.name, *(entry.onehot if isinstance(entry, CategoricalFeature) else ())):
            if name in seen:
                fail(node, f"the name {name!r} is there twice (first on line {seen[name]})", "names must be unique")
            seen[name] = node.line


def _relation(node: Node) -> BuiltDomain:
    fields = Fields(node, "relation", ("nodes",))
    place = fields.need("nodes", "write {relation: {nodes: 4}}")
    nodes = integer(place, "nodes")
    if not 1 <= nodes <= MAX_NODES:
        fail(place, f"nodes must lie between 1 and {MAX_NODES}, not {nodes}", "4 nodes are 65,536 relations")
    names = [f"r_{i}_{j}" for i in range(nodes) for j in range(nodes)]
    features = tuple(BoolFeature(name) for name in names)
    return BuiltDomain(Domain(features, nodes), (node,) * len(features))


# --- one feature ---------------------------------------------------------------------------------------------------
def feature(keys: Mapping[str, Node], name: str, node: Node) -> Feature:
    """The feature called `name` with these keys; `node` is blamed for what is not there.

    Raises:
        InputError: No type, a key that its type does not know, an empty or too large grid.
    """
    if "type" not in keys:
        fail(node, f"the feature {name!r} has no type", f"write {_EXAMPLES['int']}; types are {', '.join(type_names)}")
    kind = choice(keys["type"], f"the type of {name!r}", type_names)
    for key in keys:
        if key not in _KEYS_OF_TYPE[kind] and key not in ("name", "type", "missing"):
            fail(keys[key], f"{name!r} is {kind}, which has no {key!r}", f"write it as {_EXAMPLES[kind]}")
    for key in sorted(_KEYS_OF_TYPE[kind] - {"onehot"}):
        if key not in keys:
            fail(node, f"the {kind} feature {name!r} needs {key!r}", f"write it as {_EXAMPLES[kind]}")
    missing = "missing" in keys and boolean(keys["missing"], "missing")
    if kind == "bool":
        return BoolFeature(name, missing)
    if kind == "categorical":
        return _categorical(keys, name, missing)
    low, high = number(keys["min"], f"min of {name!r}"), number(keys["max"], f"max of {name!r}")
    if low > high:
        fail(keys["min"], f"the range of {name!r} is empty: min {shown(low)} > max {shown(high)}", "swap min and max")
    for key, value in (("min", low), ("max", high)):
        limit = FLOAT32_OVERFLOW if kind == "float32" else FLOAT32_MAX
        if not -limit <= value <= limit:
            fail(keys[key], f"{key} of {name!r} lies beyond the range of float32", "models cannot take such a value")
    if kind == "int":
        built: Feature = IntFeature(
            name, missing, integer(keys["min"], f"min of {name!r}"), integer(keys["max"], f"max of {name!r}")
        )
    elif kind == "fixed":
        built = _fixed(keys, name, missing, low, high)
    else:
        built = _float32(keys["min"], name, missing, low, high)
    if built.size > MAX_GRID:
        fail(node, f"the feature {name!r} has {built.size} values, more than 2^62", "narrow the range, widen the step")
    return built


def shown(value: Number) -> str:
    """A number for a message: a decimal when it has a short one."""
    if isinstance(value, int):
        return str(value)
    if not -FLOAT32_MAX <= value <= FLOAT32_MAX:
        return str(value)
    digits = f"{float(value):.12g}"
    return digits if yaml.exact_decimal(digits) == value else f"{value} (about {digits})"


def _fixed(keys: Mapping[str, Node], name: str, missing: bool, low: Number, high: Number) -> FixedFeature:
    step = number(keys["step"], f"step of {name!r}")
    if step <= 0:
        fail(keys["step"], f"step of {name!r} must be positive, not {shown(step)}", "write a step such as 0.001")
    steps = Fraction(high - low) / step
    if steps.denominator != 1:
        below = low + (steps.numerator // steps.denominator) * step
        fail(
            keys["step"],
            f"the step {shown(step)} does not divide the range of {name!r}, {shown(low)} to {shown(high)}",
            f"with this step, max can be {shown(integral(Fraction(below)))} or "
            f"{shown(integral(Fraction(below + step)))}",
        )
    return FixedFeature(name, missing, Fraction(low), Fraction(step), steps.numerator + 1)


def _float32(node: Node, name: str, missing: bool, low: Number, high: Number) -> Float32Feature:
    least, most = float32_at_least(low), -float32_at_least(-high)
    if least > most:
        fail(node, f"no float32 lies between min and max of {name!r}", "widen the range")
    return Float32Feature(name, missing, least + 0.0, most + 0.0)  # + 0.0: −0.0 becomes 0.0


def float32_at_least(value: Number) -> float:
    """The smallest float32 that is ≥ `value` (|value| within the range of float32)."""
    # float() rounds to the nearest float64 and the key to the nearest float32: one step off at most.
    key = float32_key(max(min(float(value), float(FLOAT32_MAX)), -float(FLOAT32_MAX)))
    while Fraction(float32_from_key(key)) < value:
        key += 1
    while key > -0x7F7FFFFF and Fraction(float32_from_key(key - 1)) >= value:
        key -= 1
    return float32_from_key(key)


def _categorical(keys: Mapping[str, Node], name: str, missing: bool) -> CategoricalFeature:
    node = keys["values"]
    pairs = _codes(node, name)
    if not pairs:
        fail(node, f"the feature {name!r} has no values", f"write it as {_EXAMPLES['categorical']}")
    _check_categories(node, name, pairs)
    if "onehot" not in keys:
        ordered = sorted(pairs, key=lambda pair: pair[1])
        return CategoricalFeature(name, missing, tuple(v for v, _ in ordered), tuple(c for _, c in ordered))
    columns = tuple(text(entry, "a onehot column") for entry in items(keys["onehot"], f"onehot of {name!r}"))
    if len(columns) != len(pairs):
        message = f"{name!r} has {len(pairs)} values but {len(columns)} onehot columns"
        fail(keys["onehot"], message, "name one column a value, in the order of the values")
    if not isinstance(node, Sequence):
        fail(node, f"{name!r} has onehot columns, so its values have no codes", "list the values: [red, green]")
    if missing:
        fail(keys["missing"], f"{name!r} has onehot columns, which cannot be missing", "add a category for it")
    return CategoricalFeature(name, missing, tuple(v for v, _ in pairs), tuple(c for _, c in pairs), columns)


def _codes(node: Node, name: str) -> list[tuple[str, Number]]:
    """Value names with the numbers that the model sees."""
    if isinstance(node, yaml.Mapping):
        pairs = [
            (text(key, f"a value of {name!r}"), number(code, f"the code of {key.text!r}")) for key, code in node.items
        ]
        for value, code in pairs:
            if not -FLOAT32_MAX <= code <= FLOAT32_MAX:
                fail(node, f"the code of {value!r} lies beyond the range of float32", "models cannot take such a value")
        return pairs
    entries = items(node, f"values of {name!r}")
    for place, entry in enumerate(entries):
        if isinstance(entry, Scalar) and not isinstance(entry.value, str) and entry.value != place:
            fail(
                entry,
                f"values of {name!r}: {describe(entry)} would be given to the model as {place}, its place in the list",
                f"say what the model sees, such as values: {{{entry.text or 'red'}: {entry.text or 1}}}, "
                "or put names in quotes",
            )
        if isinstance(entry, Scalar) and isinstance(entry.value, bool):
            fail(entry, f"values of {name!r}: {entry.text} is no name", "use type: bool, or put the name in quotes")
    return [(text(entry, f"a value of {name!r}"), place) for place, entry in enumerate(entries)]


def _check_categories(node: Node, name: str, pairs: list[tuple[str, Number]]) -> None:
    values: set[str] = set()
    codes: dict[Number, str] = {}
    for value, code in pairs:
        if value in values:
            fail(node, f"the value {value!r} of {name!r} is there twice", "name each value once")
        if code in codes:
            fail(node, f"{value!r} and {codes[code]!r} of {name!r} have one code, {shown(code)}", "codes must differ")
        values.add(value)
        codes[code] = value
