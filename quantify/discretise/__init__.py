"""Problem to integer Problem: thresholds become grid cuts, expressions integer predicates; then the check."""

from __future__ import annotations

from quantify.discretise.fidelity import check_fidelity
from quantify.discretise.inputs import to_inputs
from quantify.discretise.library_answers import LibraryAnswers
from quantify.discretise.lowering import lower
from quantify.discretise.network_fidelity import check_library
from quantify.discretise.replay import replay

__all__ = ["LibraryAnswers", "check_fidelity", "check_library", "lower", "replay", "to_inputs"]
