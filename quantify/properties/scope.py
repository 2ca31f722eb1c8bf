"""A domain and a model in, the meaning of names in expressions out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from quantify.ir.domain import BoolFeature, CategoricalFeature, Domain, Feature
from quantify.ir.model import Decision
from quantify.properties.library import LIBRARY
from quantify.properties.yaml import listed, suggest

RESERVED = ("label", "x", "score")
"""Names that never stand for a feature of that name."""
RANKS = ("lowest", "highest")
"""Names of the class with the extreme score, where there are scores."""
FUNCTIONS = (
    "abs",
    "all",
    "any",
    "count",
    "feature",
    "implies",
    "is_missing",
    "len",
    "max",
    "min",
    "range",
    "sum",
)


@dataclass(frozen=True)
class Scope:
    """What expressions of one property may name."""

    domain: Domain
    classes: tuple[str, ...]
    """`str(class)` by class index."""
    places_agree: bool
    """Whether the i-th feature is the model's i-th column, so that `x[i]` can mean only one thing."""
    label_allowed: bool = True
    """False where the model's answer must not be used (a ground truth)."""
    scores: int = 0
    """How many scores the model has (a sigmoid head: 1, the logit); 0 for trees."""
    decision: Decision = "argmax"
    """Which score names the label."""

    def feature(self, place: int) -> Feature:
        """The feature at `place`."""
        return self.domain.features[place]

    def is_category(self, place: int) -> bool:
        """Whether the feature has names instead of numbers."""
        return isinstance(self.feature(place), CategoricalFeature)

    def is_boolean(self, place: int) -> bool:
        """Whether the feature is a truth value."""
        return isinstance(self.feature(place), BoolFeature)

    @cached_property
    def nodes(self) -> int | None:
        """n when the domain can be read as an n×n relation: boolean features, a square number of them."""
        if self.domain.relation_nodes is not None:
            return self.domain.relation_nodes
        count = len(self.domain.features)
        root = math.isqrt(count)
        return root if root * root == count and all(map(self.is_boolean, range(count))) else None

    def suggestion(self, name: str) -> tuple[str, str]:
        """End of the message, and the hint, about a name that means nothing."""
        names = [feature.name for feature in self.domain]
        close = suggest(name, [*names, *LIBRARY, *FUNCTIONS, *RESERVED, *(RANKS if self.scores else ())])
        if any(name in feature.values for feature in self.domain if isinstance(feature, CategoricalFeature)):
            return "", f"values of categorical features are text, in quotes: '{name}'"
        if name in self.classes:
            return "", f"labels are text, in quotes: label == '{name}'"
        if not close:
            near = suggest(name.replace("_", " "), names)
            if near:
                return near, 'names that are no identifiers are written feature("odd name")'
        answers = "label, score[i], lowest, highest" if self.scores else "label"
        return close, f"features: {listed(names)}; answers: {answers}"

    def class_index(self, text: str) -> int | None:
        """The index of the class whose `str` is `text`; `true` and `false` as YAML writes them are `True`, `False`."""
        for spelling in (text, text.capitalize() if text in ("true", "false") else text):
            if spelling in self.classes:
                return self.classes.index(spelling)
        return None
