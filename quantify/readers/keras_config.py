"""The JSON architecture of a Keras model to its layers, one after the other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quantify.errors import InputError, UnsafeFileError
from quantify.readers.unpickle import printable

MAX_LAYERS = 10_000
CHAIN = "quantify reads Sequential and Functional models in which each layer feeds the next"
SAVE_AGAIN = "save the model again with model.save"


@dataclass(frozen=True)
class LayerConfig:
    """One layer of the file."""

    kind: str
    """Class name."""
    name: str
    config: Mapping[str, Any] = field(repr=False)
    built_for: Any = None
    """Input shape it was built for, when the file says."""

    def __str__(self) -> str:
        return f"layer {printable(self.name)} ({printable(self.kind)})"


@dataclass(frozen=True)
class Architecture:
    """Layers in order, the InputLayer left out."""

    layers: tuple[LayerConfig, ...]
    input_sizes: tuple[int | None, ...] | None
    """Input shape without the batch, None for sizes left open; None when only the first layer's weights tell."""
    dtypes: frozenset[str]
    """Names of the types that inputs and layers compute in."""

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """`input_sizes`, all of them known.

        Raises:
            InputError: A size is left open.
        """
        found = self.input_sizes
        if found is None:
            return None
        if None in found:
            shown = ", ".join("?" if size is None else str(size) for size in found)
            raise InputError(f"its input has no fixed shape: ({shown})", "build the model for one input shape")
        return tuple(size for size in found if size is not None)

    def dtype(self, *wanted: str) -> str:
        """The type that the whole network computes in.

        Raises:
            InputError: None of these, or several.
        """
        for name in wanted:
            if self.dtypes == {name}:
                return name
        shown = ", ".join(printable(name) for name in sorted(self.dtypes))
        known = " or ".join(wanted)
        raise InputError(f"computes in {shown}", f"quantify reads models that compute in {known} throughout")


def parse_json(text: str | bytes, what: str) -> Any:
    """JSON of unknown origin.

    Raises:
        InputError: It is none, or nested too deeply.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"its {what} is no JSON ({printable(str(error))})", SAVE_AGAIN) from None


def architecture(document: Any) -> Architecture:
    """The chain of layers that a model's configuration describes.

    Raises:
        InputError: Not a model, or not a chain.
        UnsafeFileError: It holds code (Lambda).
    """
    kind, config = _class_and_config(document, "the model")
    _own(document, "the model")
    if kind == "Sequential":
        entries = config if isinstance(config, list) else config.get("layers")
        found = _entries(entries)
    elif kind in ("Functional", "Model"):
        found = _chain(config)
    else:
        raise InputError(f"holds a {printable(kind)}", CHAIN)
    layers = [_layer(entry) for entry in found]
    shapes = [layer.config.get("batch_shape", layer.config.get("batch_input_shape")) for layer in layers[:1]]
    if isinstance(config, dict):
        shapes.append(config.get("build_input_shape"))
    built = document.get("build_config")
    shapes.append(built.get("input_shape") if isinstance(built, dict) else None)
    shapes.extend(layer.built_for for layer in layers[:1])
    kept = tuple(layer for layer in layers if layer.kind != "InputLayer")
    if any(layer.kind == "InputLayer" for layer in layers[1:]):
        raise InputError("has an input layer in the middle", CHAIN)
    shape = next((_shape(shape) for shape in shapes if shape is not None), None)
    return Architecture(kept, shape, frozenset(_dtype(layer) for layer in layers))


def _class_and_config(entry: Any, what: str) -> tuple[str, Any]:
    if not isinstance(entry, dict) or not isinstance(entry.get("class_name"), str):
        raise InputError(f"its configuration does not say what {what} is", SAVE_AGAIN)
    config = entry.get("config")
    if not isinstance(config, dict | list):
        raise InputError(f"its configuration does not describe {what}", SAVE_AGAIN)
    return entry["class_name"], config


def _own(entry: dict[str, Any], what: str) -> None:
    """Refuse what is no class of Keras itself, however it is called."""
    kind, module = entry["class_name"], entry.get("module")
    registered = entry.get("registered_name")
    foreign = isinstance(module, str) and module.split(".")[0] not in ("keras", "tf_keras", "tensorflow")
    if foreign or (registered is not None and registered != kind):
        raise InputError(
            f"{what} is the custom class {printable(str(registered or kind))}", "quantify reads Keras's own layers only"
        )


def _entries(entries: Any) -> list[dict[str, Any]]:
    if not isinstance(entries, list) or not entries or len(entries) > MAX_LAYERS:
        raise InputError("has no list of layers", SAVE_AGAIN)
    return entries


def _layer(entry: Any) -> LayerConfig:
    kind, config = _class_and_config(entry, "a layer")
    name = config.get("name", entry.get("name", "?")) if isinstance(config, dict) else "?"
    shown = f"layer {printable(str(name))} ({printable(kind)})"
    if kind == "Lambda":
        raise UnsafeFileError(
            f"{shown} holds Python code, which quantify never loads", "replace it by Keras's own layers"
        )
    _own(entry, shown)
    if not isinstance(config, dict) or kind in ("Sequential", "Functional", "Model"):
        raise InputError(f"{shown} is a model inside the model", "put its layers into the outer model; " + CHAIN)
    built = entry.get("build_config")
    return LayerConfig(kind, str(name), config, built.get("input_shape") if isinstance(built, dict) else None)


# --- functional models -------------------------------------------------------------------------------------------
def _chain(config: Any) -> list[dict[str, Any]]:
    """The layers from the input to the output of a functional model."""
    if not isinstance(config, dict):
        raise InputError("has no list of layers", SAVE_AGAIN)
    entries = _entries(config.get("layers"))
    by_name: dict[str, dict[str, Any]] = {}
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or name in by_name:
            raise InputError("has a layer without a name of its own", SAVE_AGAIN)
        by_name[name] = entry
    first, last = (
        _only(config.get(key), what) for key, what in (("input_layers", "input"), ("output_layers", "output"))
    )
    chain: list[dict[str, Any]] = []
    at = last
    while at not in {entry["name"] for entry in chain}:
        if at not in by_name:
            raise InputError(f"names a layer {printable(at)} that it does not have", SAVE_AGAIN)
        chain.append(by_name[at])
        sources = _sources(by_name[at])
        if at == first:
            break
        if len(sources) != 1:
            raise InputError(f"layer {printable(at)} takes {len(sources)} inputs or is used several times", CHAIN)
        at = sources[0]
    if at != first or len(chain) != len(entries):
        raise InputError("is no chain of layers", CHAIN)
    return chain[::-1]


def _only(found: Any, what: str) -> str:
    """The one layer name of `["name", 0, 0]` or `[["name", 0, 0]]`."""
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, list) or len(found) != 3 or not isinstance(found[0], str):
        raise InputError(f"does not have exactly one {what}", CHAIN)
    return found[0]


def _sources(entry: dict[str, Any]) -> list[str]:
    """Names of the layers that feed this one, over all its calls, in the notation of Keras 2 or 3."""
    names: list[str] = []
    waiting = [entry.get("inbound_nodes")]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            if found.get("training"):
                raise InputError(
                    f"layer {printable(entry['name'])} is called with training=True",
                    "build the model without it: what such a layer computes is random or depends on the batch",
                )
            history = found.get("keras_history")
            if isinstance(history, list) and history and isinstance(history[0], str):
                names.append(history[0])
            else:
                waiting.extend(found.values())
        elif isinstance(found, list):
            # Keras 2: [name, node, tensor, {keyword arguments}]
            if len(found) in (3, 4) and isinstance(found[0], str) and isinstance(found[1], int):
                names.append(found[0])
                waiting.extend(found[3:])
            else:
                waiting.extend(found)
    return names


# --- shapes and types --------------------------------------------------------------------------------------------
def _shape(found: Any) -> tuple[int | None, ...]:
    """Input shape without the batch, None for sizes that are left open.

    Raises:
        InputError: Several inputs, or sizes that are none.
    """
    if not isinstance(found, list) or not found or any(isinstance(size, list | dict) for size in found):
        raise InputError("has several inputs, or an input shape that makes no sense", CHAIN)
    sizes = found[1:]
    if not sizes or any(
        size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1) for size in sizes
    ):
        shown = printable(", ".join("?" if size is None else str(size) for size in sizes))
        raise InputError(f"its input has no fixed shape: ({shown})", "build the model for one input shape")
    return tuple(sizes)


def _dtype(layer: LayerConfig) -> str:
    """Name of the type a layer computes in; Keras's default when the file is silent."""
    found = layer.config.get("dtype")
    if isinstance(found, dict):
        inner = found.get("config")
        plain = found.get("class_name") in ("DTypePolicy", "Policy") and isinstance(inner, dict)
        found = inner.get("name") if plain and isinstance(inner, dict) else str(found.get("class_name"))
    if found is None:
        return "float32"
    return str(found)
