"""A parsed property file and a model in, the validated Problem out."""

from __future__ import annotations

from quantify.ir.model import Model
from quantify.ir.network import Network
from quantify.ir.problem import Problem
from quantify.properties import columns, domain, kinds, measure, network, robustness
from quantify.properties.scope import Scope
from quantify.properties.source import NETWORK_KEYS, PropertySource


def bind(source: PropertySource, model: Model, *, seed: int = 0) -> Problem:
    """Validate model, domain and property together.

    Args:
        source: What `load` read.
        model: The model; its `predict` is called only for the centres of a robustness property. The problem's model
            has the labels and the decision of the property file.
        seed: Seed of `fixed: {fraction: …}` when that names none.

    Raises:
        InputError: Anything that does not fit, with file and line.
    """
    fields = source.fields
    if not isinstance(model.structure, Network):
        kinds.network_only(fields, NETWORK_KEYS)
    model = network.as_decided(fields, model)
    base = source.path.parent
    if source.kind == "robustness":
        return robustness.build(source, model, seed)
    node = fields.need("domain", "write domain: {features: […]}")
    built = domain.build(node, model, base)
    places = columns.match(built, model, node)
    weights = measure.build(fields.get("measure"), built.domain, base)
    options = network.options(fields, model, built.domain, places, base)
    scope = Scope(
        built.domain,
        model.classes,
        columns.in_model_order(places),
        scores=model.structure.outputs if isinstance(model.structure, Network) else 0,
        decision=options.decision if options is not None else "argmax",
    )
    positive = None
    if source.kind == "safety":
        case = kinds.safety(fields, scope)
    elif source.kind == "classes":
        case = kinds.classes(fields, scope)
    else:
        case, positive = kinds.learnability(fields, scope)
    return Problem(
        model=model,
        domain=built.domain,
        measure=weights,
        columns=places,
        kind=source.kind,
        name=source.name,
        cases=(case,),
        property_path=str(source.path),
        property_sha256=source.sha256,
        positive=positive,
        notes=built.notes,
        network=options,
    )
