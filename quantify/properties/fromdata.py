"""A data file in, the Domain of its columns out: the smallest grid of the plainest kind that holds every value.

`domain: {from: data.csv, label: target, drop: [id], features: [{name: age, type: float32}]}`: a column of integers
becomes `int`, one of decimals `fixed` with the step of its last decimal place, one of `true` and `false`
`bool`, one of other text `categorical` with codes 0, 1, … in the order of the sorted names, one with empty cells gets
`missing: true`. An entry under `features` fixes
what it names; what it leaves out still comes from the data.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

from quantify.ir.domain import CategoricalFeature, Domain, Feature, FixedFeature, Number
from quantify.ir.model import Model
from quantify.properties.domain import FEATURE_KEYS, BuiltDomain, check_names, feature, shown
from quantify.properties.fields import Fields, blame, boolean, items, text
from quantify.properties.table import Cell, Table, column_index, open_table
from quantify.properties.yaml import Mapping, Node, Scalar, Sequence, fail, integral, listed, suggest

MAX_CATEGORIES = 10_000


def build(fields: Fields, model: Model, base: Path) -> BuiltDomain:
    """The domain of the file named under `from`, columns in the order of the file.

    Raises:
        InputError: The file cannot be used, an override names no column, a column has no values, or its grid is too
            large.
    """
    place = fields.need("from", "")
    header_node = fields.get("header")
    with blame(place):
        table = open_table(base / text(place, "from"), header_node is None or boolean(header_node, "header"))
        names = table.names or model.column_names or tuple(f"x{i}" for i in range(table.width))
        if len(names) != table.width:
            fail(place, f"{table.path} has {table.width} columns, the model {len(names)}", "use a file that matches")
        if table.height() == 0:
            fail(place, f"{table.path} has no data rows", "ranges need data")
        columns = table.distinct()
    dropped = _dropped(fields, table)
    overrides = _overrides(fields, [name for i, name in enumerate(names) if i not in dropped])
    pairs: list[tuple[Feature, Node]] = []
    taken: list[str] = []
    for i, name in enumerate(names):
        if i in dropped:
            continue
        node, own = overrides.get(name, (place, {}))
        built, how = _column(name, columns[i], own, node)
        pairs.append((built, node))
        taken.append(how)
    if not pairs:
        fail(place, "no column is left as a feature", "drop fewer columns")
    check_names(pairs)
    note = f"domain taken from {table.path.name} ({table.height()} rows): " + "; ".join(_shortened(taken))
    return BuiltDomain(
        Domain(tuple(f for f, _ in pairs)), tuple(n for _, n in pairs), (note,), f"{table.path} sha256:{table.sha256}"
    )


def _shortened(taken: list[str]) -> list[str]:
    return taken if len(taken) <= 60 else [*taken[:30], f"… {len(taken) - 31} more …", taken[-1]]


def _dropped(fields: Fields, table: Table) -> set[int]:
    nodes: list[Node] = []
    if (label := fields.get("label")) is not None:
        nodes.append(label)
    if (drop := fields.get("drop")) is not None:
        nodes.extend(items(drop, "drop"))
    places = set()
    for node in nodes:
        with blame(node):
            places.add(column_index(table, text(node, "a column")))
    return places


def _overrides(fields: Fields, names: list[str]) -> dict[str, tuple[Node, dict[str, Node]]]:
    node = fields.get("features")
    overrides: dict[str, tuple[Node, dict[str, Node]]] = {}
    for entry in () if node is None else items(node, "features"):
        keys = Fields(entry, "a feature", [key for key in FEATURE_KEYS if key not in ("count", "onehot")])
        name = text(keys.need("name", "name the column that this is about"), "the name of a feature")
        if name not in names:
            fail(entry, f"no column is called {name!r}{suggest(name, names)}", f"the columns are {listed(names)}")
        if name in overrides:
            fail(entry, f"the feature {name!r} is there twice", "describe each column once")
        own = {key: keys.need(key, "") for key in FEATURE_KEYS if key in keys}
        overrides[name] = (entry, own)
    return overrides


def _column(name: str, cells: set[Cell], own: dict[str, Node], node: Node) -> tuple[Feature, str]:
    """One feature and the words that say what was taken."""
    numbers = sorted(cell for cell in cells if isinstance(cell, int | Fraction))
    words = sorted(cell for cell in cells if isinstance(cell, str))
    keys = dict(own)
    if None in cells:
        keys.setdefault("missing", _scalar(node, True))
    if not numbers and not words and len(own) <= 1:
        fail(node, f"the column {name!r} has no values, only empty cells", "drop it, or describe it under features")
    kind = own.get("type")
    word = kind.text if isinstance(kind, Scalar) else _plainest(numbers, words, own)
    keys.setdefault("type", _scalar(node, word))
    if word in ("int", "fixed", "float32"):
        if words and not {"min", "max"} <= set(own):
            fail(node, f"the column {name!r} holds text ({listed(words, 3)}), so it has no range", "use categorical")
        _add_range(name, numbers, keys, node)
    elif word == "categorical":
        _add_values(name, numbers, words, keys, node)
    elif word == "bool" and not _is_boolean(numbers, words):
        fail(node, f"the column {name!r} holds more than 0 and 1", "choose another type")
    built = feature(keys, name, node)
    if isinstance(built, CategoricalFeature) and (strange := [w for w in words if w not in built.values]):
        fail(node, f"values of {name!r}: the column also holds {listed(strange)}", "list these values too")
    return built, _words(built)


def _plainest(numbers: list[Number], words: list[str], own: dict[str, Node]) -> str:
    if words and "values" not in own and _is_boolean(numbers, words):
        return "bool"
    if words or "values" in own:
        return "categorical"
    return "int" if "step" not in own and all(isinstance(value, int) for value in numbers) else "fixed"


def _is_boolean(numbers: list[Number], words: list[str]) -> bool:
    return all(value in (0, 1) for value in numbers) and {word.lower() for word in words} <= {"true", "false"}


def _add_range(name: str, numbers: list[Number], keys: dict[str, Node], node: Node) -> None:
    """Fill in min, max and step; what the data say is widened to whole steps."""
    kind = keys["type"]
    step: Number = 1
    if isinstance(kind, Scalar) and kind.text == "fixed":
        if "step" not in keys:
            keys["step"] = _scalar(node, _last_place(name, numbers, node))
        given = keys["step"]
        if isinstance(given, Scalar) and isinstance(given.value, int | Fraction) and given.value > 0:
            step = given.value
    for key in ("min", "max"):
        if key in keys:
            continue
        if not numbers:
            fail(node, f"the column {name!r} holds no numbers to take {key} from", f"write {key} under features")
        value = Fraction(numbers[0] if key == "min" else numbers[-1])
        if not (isinstance(kind, Scalar) and kind.text == "float32"):
            value = (math.floor(value / step) if key == "min" else math.ceil(value / step)) * Fraction(step)
        keys[key] = _scalar(node, integral(value))


def _last_place(name: str, numbers: list[Number], node: Node) -> Number:
    """10^−d for the smallest d such that every value is a multiple of it."""
    places = 0
    for value in numbers:
        denominator = Fraction(value).denominator
        while 10**places % denominator:
            places += 1
            if places > 400:
                fail(node, f"the column {name!r} has no common decimal step", "write its type under features")
    return integral(Fraction(1, 10**places))


def _add_values(name: str, numbers: list[Number], words: list[str], keys: dict[str, Node], node: Node) -> None:
    if "values" in keys:
        return
    if len(words) + len(numbers) > MAX_CATEGORIES:
        message = f"the column {name!r} has more than {MAX_CATEGORIES} different values"
        fail(node, message, "drop it if it is an identifier, or describe it under features")
    if words and numbers:
        fail(
            node,
            f"the column {name!r} mixes numbers ({shown(numbers[0])}) and text ({words[0]!r})",
            "write its values under features, with the number that the model sees for each",
        )
    if numbers:
        pairs = tuple((_scalar(node, shown(value)), _scalar(node, value)) for value in numbers)
        keys["values"] = Mapping(node.file, node.line, pairs)
    else:
        keys["values"] = Sequence(node.file, node.line, tuple(_scalar(node, word) for word in words))


def _words(built: Feature) -> str:
    gap = " or missing" if built.missing else ""
    if built.kind == "bool":
        return f"{built.name} bool{gap}"
    if built.kind == "categorical":
        codes = ", ".join(f"{built.shown(p)}={shown(built.value(p))}" for p in range(min(built.grid_size, 6)))
        return f"{built.name} categorical ({codes}{', …' if built.grid_size > 6 else ''}){gap}"
    low, high = built.value(0), built.value(built.grid_size - 1)
    step = f" by {shown(built.step)}" if isinstance(built, FixedFeature) else ""
    return f"{built.name} {built.kind} {shown(low)}…{shown(high)}{step}{gap}"


def _scalar(node: Node, value: bool | Number | str) -> Scalar:
    """A value as if it had been written at `node`."""
    return Scalar(node.file, node.line, value, value if isinstance(value, str) else str(value))
