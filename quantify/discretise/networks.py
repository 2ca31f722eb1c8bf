"""A Network, its domain and options to the IntNetwork that engines count on, with proven widths and score ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from quantify.discretise.linear import RealLinear, composed
from quantify.discretise.network_bits import bits_layers
from quantify.discretise.network_exact import exact_layers, integer_layers
from quantify.discretise.network_inputs import InputMap, input_map
from quantify.discretise.network_ranges import proven
from quantify.discretise.network_steps import Step, decided, is_integer, is_quantised, merged, steps_of, with_inputs
from quantify.errors import InputError
from quantify.ir.network import IntLayer, IntNetwork, Network
from quantify.ir.predicate import Score
from quantify.ir.problem import NetworkOptions, Problem


@dataclass(frozen=True)
class Lowered:
    """A network in integers, and what its scores are."""

    network: IntNetwork
    scores: tuple[tuple[Fraction, Score], ...]
    """Real score i of the property language = factor · integer score."""


def lower_network(problem: Problem) -> Lowered:
    """The integer network over grid positions.

    `exact` (and networks whose constants are integers): the real-arithmetic function of the stored constants over the
    exact values of the grid. `bits`: see `network_bits`. Files that compute in integers keep their own arithmetic.

    Raises:
        InputError: Inputs that cannot be made exact or that the file does not allow, constants that are not finite,
            `bits` for a network that is quantised already, an accumulator that may overflow.
    """
    network, options = _network(problem), problem.network or NetworkOptions()
    inputs = input_map(problem, network)
    before = [] if inputs.tables is None else [inputs.tables]
    exact = True
    if is_quantised(network):
        if options.mode == "bits":
            raise InputError("this model is quantised already", "remove quantization:")
        layers, unit = _own_arithmetic(network, inputs), network.output_scale or Fraction(1)
    elif options.mode == "bits":
        layers, unit, exact = bits_layers(problem, network, inputs)
    else:
        layers, unit = exact_layers(_over_positions(network, inputs), inputs.linear.inputs)
    return _finished(problem, network, [*before, *layers], unit, exact)


def exact_mode(problem: Problem) -> Problem:
    """The same problem with the network's real function instead of a quantised one."""
    return replace(problem, network=replace(problem.network or NetworkOptions(), mode="exact"))


def is_assumed_exact(problem: Problem) -> bool:
    """Whether a network of floats is counted exactly only because nothing was said."""
    network, options = _network(problem), problem.network or NetworkOptions()
    return options.mode == "default" and not is_integer(network) and not is_quantised(network)


def _network(problem: Problem) -> Network:
    structure = problem.model.structure
    assert isinstance(structure, Network)
    return structure


def _over_positions(network: Network, inputs: InputMap) -> list[Step]:
    """The steps with the input map in front, merged into the first linear one."""
    linear, rest = with_inputs(steps_of(network), inputs.linear)
    if rest and isinstance(rest[0], RealLinear):
        linear = composed(rest[0], linear)
        rest = rest[1:]
    return merged([linear, *rest])


def _own_arithmetic(network: Network, inputs: InputMap) -> list[IntLayer]:
    """Quantised inputs are integers, so the map into the first layer is exact and keeps its accumulators."""
    return integer_layers(_over_positions(network, inputs), inputs.linear.inputs)


def _finished(problem: Problem, network: Network, layers: Sequence[IntLayer], unit: Fraction, exact: bool) -> Lowered:
    options = problem.network or NetworkOptions()
    complete, sign = decided(layers, network, unit, options.decision)
    done, interval = proven(complete, problem.domain.sizes)
    outputs = 2 if network.head == "sigmoid" else network.outputs
    result = IntNetwork(
        inputs=len(problem.domain.features),
        layers=done,
        outputs=outputs,
        score_scale=unit,
        score_sign=1 if sign > 0 else -1,
        exact=exact,
    )
    scores = [
        (unit * sign, Score(index, int(interval.low[index]), int(interval.high[index]))) for index in range(outputs)
    ]
    # A sigmoid head has one score, the logit; the other is the threshold.
    return Lowered(result, tuple(scores[1:] if network.head == "sigmoid" else scores))
