"""Seeded random problems on disk, model and property file, with every count by enumeration of the library's predict.

Nothing of quantify is used: values come from `drawn_features`, truth from Python's eval, distances are fractions.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from drawn_expressions import Writer
from drawn_features import NUMERIC, Drawn, decimal_text, draw_features, int_feature, quoted
from drawn_models import draw_model, inputs_at, save
from exact_eval import truths
from numpy.typing import NDArray

KINDS = ("safety", "safety", "classes", "learnability", "linf", "l1", "l0")
FEATURE_KINDS = ("int", "int", "bool", "categorical", "codes", "onehot", "fixed", "fixed", "float32")
Mask = NDArray[np.bool_]


@dataclass
class Problem:
    """One problem, and what must come out."""

    seed: int
    kind: str
    model: Path
    property: Path
    features: list[Drawn]
    """In the order of the domain."""
    positions: NDArray[np.int64]
    """Every input of the domain (rows × features)."""
    labels: NDArray[np.str_]
    """`str` of the library's answer for each of them."""
    cases: list[dict[str, Mask]] = field(default_factory=list)
    """For each case and query, the inputs that it counts."""
    regions: list[Mask] = field(default_factory=list)
    """For each case, the inputs of its region."""
    weights: list[list[Fraction]] | None = None
    """Under a product measure, the probability of each value of each feature."""
    texts: list[str] = field(default_factory=list)
    """The expressions of the property."""
    scores: list[list[Fraction]] | None = None
    """Of a network, its exact scores for each input."""
    names: tuple[str, ...] = ()
    """Of a network, the names of its scores."""

    def share(self, mask: Mask) -> Fraction:
        """Probability of the inputs in `mask`: their number over the domain's size, or their mass."""
        if self.weights is None:
            return Fraction(int(mask.sum()), len(self.positions))
        denominators = [math.lcm(*(w.denominator for w in feature)) for feature in self.weights]
        mass = np.ones(int(mask.sum()), object)
        for place, (feature, scale) in enumerate(zip(self.weights, denominators, strict=True)):
            mass *= np.array([int(w * scale) for w in feature], object)[self.positions[mask, place]]
        return Fraction(int(mass.sum()), math.prod(denominators))

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.model}\n{self.property.read_text()}"


def draw_problem(seed: int, folder: Path, kinds: tuple[str, ...] = KINDS, most_points: int | None = None) -> Problem:
    """The problem of a seed, its files written to `folder`."""
    rng = random.Random(seed)
    kind = rng.choice(kinds)
    room = rng.choices((64, 512, 2048, 8192, 65536), (15, 40, 32, 11, 2))[0] if most_points is None else most_points
    builder = Builder(rng, seed, kind, folder, room)
    return builder.robustness() if kind in ("linf", "l1", "l0") else builder.over_domain()


class Builder:
    """Draws one problem; subclasses say how its model is made and asked."""

    def __init__(self, rng: random.Random, seed: int, kind: str, folder: Path, room: int) -> None:
        self.rng, self.seed, self.kind, self.folder = rng, seed, kind, folder
        self.room = room
        self.missing = rng.random() < 0.35
        self.kinds = FEATURE_KINDS
        self.lines = [f"property: {'robustness' if kind in ('linf', 'l1', 'l0') else kind}", f"name: seed {seed}"]

    # --- model and domain ---
    def features(self) -> list[Drawn]:
        """In the order of the model's columns."""
        return draw_features(self.rng, self.room, self.missing, self.kinds)

    def fitted(self, features: list[Drawn]) -> tuple[Any, list[Drawn]]:
        """The model, and the features in the order in which the domain will list them."""
        rows = np.array([[self.rng.randrange(f.size) for f in features] for _ in range(self.rng.randint(8, 60))])
        model = draw_model(self.rng, features, inputs_at(features, rows))
        self.path = save(self.rng, model, self.folder)
        listed = list(features)
        if hasattr(model, "feature_names_in_") and self.rng.random() < 0.5:
            self.rng.shuffle(listed)
        self.in_order = [f.name for f in listed] == [f.name for f in features]
        self.in_order = self.in_order and not any(f.is_onehot for f in features)
        self.model_features = features
        return model, listed

    def answers(self, model: Any, listed: list[Drawn], positions: NDArray[np.int64]) -> NDArray[Any]:
        """`str` of the library's predict."""
        order = [next(i for i, f in enumerate(listed) if f.name == g.name) for g in self.model_features]
        names = getattr(model, "feature_names_in_", None)
        if names is not None:
            del model.feature_names_in_  # or predict warns about a matrix without names
        found = model.predict(inputs_at(self.model_features, positions[:, order]))
        return np.array([str(label) for label in found])

    def problem(self, model: Any, listed: list[Drawn]) -> Problem:
        positions = np.array(list(itertools.product(*(range(f.size) for f in listed))), np.int64)
        positions = positions.reshape(-1, len(listed))
        labels = self.answers(model, listed, positions)
        return Problem(self.seed, self.kind, self.path, self.folder / "property.yaml", listed, positions, labels)

    def domain_lines(self, listed: list[Drawn]) -> None:
        self.lines += ["domain:", "  features:", *(f"    - {feature.yaml}" for feature in listed)]

    def measure_lines(self, problem: Problem) -> None:
        """Perhaps a product measure: weights of some features, among them 0 and values that are not listed."""
        if self.rng.random() < 0.7:
            return
        chosen = [f for f in problem.features if self.rng.random() < 0.6] or problem.features[:1]
        self.lines += ["measure:", "  product:", "    weights:"]
        problem.weights = []
        for feature in problem.features:
            if feature not in chosen:
                problem.weights.append([Fraction(1, feature.size)] * feature.size)
                continue
            parts = [self.rng.choice((0, 1, 1, 2, 3, 10)) for _ in range(feature.size)]
            parts[self.rng.randrange(feature.size)] += 1
            total = sum(parts)
            problem.weights.append([Fraction(part, total) for part in parts])
            items = [
                f"{quoted(text) if feature.kind == 'categorical' else text}: {part}/{total}"
                for text, part in zip(feature.texts, parts, strict=True)
                if part or self.rng.random() < 0.5
            ]
            self.rng.shuffle(items)
            self.lines.append(f"      {quoted(feature.name)}: {{{', '.join(items)}}}")

    # --- properties of the whole domain ---
    def over_domain(self) -> Problem:
        model, listed = self.fitted(self.features())
        classes = [str(c) for c in model.classes_]
        problem = self.problem(model, listed)
        self.domain_lines(listed)
        self.measure_lines(problem)
        integers = all(isinstance(c, int | np.integer | bool | np.bool_) for c in model.classes_)
        self.writer = self.writer_of(problem, classes, integers)
        self.truth_writer = Writer(self.rng, listed, (), False, self.in_order)
        assumed = np.ones(len(problem.positions), np.bool_)
        self.outside = ""
        if self.rng.random() < 0.6:
            assumed = self.expression("assume", problem, self.writer)
            self.outside = "(outside)" if "outside" in classes else "outside"
        problem.regions.append(np.ones(len(problem.positions), np.bool_))
        masks = {"safety": self.safety, "classes": self.classes, "learnability": self.learnability}[self.kind](
            problem, classes
        )
        found = {name: mask & assumed for name, mask in masks.items()}
        if self.outside:
            found[self.outside] = ~assumed
        problem.cases.append(found)
        problem.property.write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        return problem

    def writer_of(self, problem: Problem, classes: list[str], integers: bool) -> Writer:
        """Draws the expressions that may read the model's answer."""
        return Writer(self.rng, problem.features, classes, integers, self.in_order)

    def expression(self, key: str, problem: Problem, writer: Writer, indent: str = "") -> Mask:
        text = writer.text(self.rng.choice((0, 1, 2, 2, 3)))
        self.lines.append(f"{indent}{key}: {quoted(text)}")
        problem.texts.append(text)
        return truths(text, problem.features, problem.positions, problem.labels, problem.scores, problem.names)

    def safety(self, problem: Problem, classes: list[str]) -> dict[str, Mask]:
        claim = self.expression("assert", problem, self.writer)
        return {"satisfied": claim, "violated": ~claim}

    def classes(self, problem: Problem, classes: list[str]) -> dict[str, Mask]:
        return {name: problem.labels == name for name in classes}

    def learnability(self, problem: Problem, classes: list[str]) -> dict[str, Mask]:
        positive = self.rng.choice(classes) if self.rng.random() < 0.6 else None
        if positive is not None:
            self.lines.append(f"positive: {quoted(positive)}")
        if positive is not None and self.rng.random() < 0.6:
            truth = self.expression("ground_truth", problem, self.truth_writer)
            return _confusion("", problem.labels == positive, truth)
        wanted = [c for c in classes if self.rng.random() < 0.7 or c == positive] or classes[:1]
        self.lines.append("ground_truth:")
        parts = {c: self.expression(quoted(c), problem, self.truth_writer, "  ") for c in wanted}
        held = np.sum(list(parts.values()), axis=0)
        found = {"gap": held == 0, "overlap": held >= 2, "unique": held == 1}
        for name, truth in parts.items():
            if positive is None:
                found |= _confusion(f"{name}/", problem.labels == name, truth)
            elif name == positive:
                found |= _confusion("", problem.labels == name, truth)
        return found

    # --- robustness ---
    def robustness(self) -> Problem:
        has_domain = self.rng.random() < 0.75
        features = self.features() if has_domain else self.integers_only()
        model, listed = self.fitted(features)
        names = getattr(model, "feature_names_in_", None)
        if not has_domain:
            listed = features  # the model's own order
        centres = [
            tuple(self.rng.choice([p for p, m in enumerate(f.meanings) if m is not None]) for f in listed)
            for _ in range(self.rng.choice((1, 1, 2, 3)))
        ]
        clip = self.clip(listed, centres) if self.rng.random() < 0.4 else None
        epsilons = self.epsilons(listed, centres)
        if not has_domain:
            # The domain comes from the file; take one that holds every ball.
            listed, centres, clip = self.span(features, centres, epsilons, clip)
            self.model_features = listed
        problem = self.problem(model, listed)
        held = self.held(listed)
        self.lines += [f"norm: {self.kind}"] if self.kind != "linf" or self.rng.random() < 0.5 else []
        shown = [decimal_text(e) for e in epsilons]
        self.lines.append(f"epsilon: {shown[0] if len(shown) == 1 else '[' + ', '.join(shown) + ']'}")
        if clip is not None:
            self.lines.append(f"clip: [{decimal_text(clip[0])}, {decimal_text(clip[1])}]")
        if held:
            self.lines.append(f"fixed: [{', '.join(quoted(f.name) for f in held)}]")
        if has_domain:
            self.domain_lines(listed)
            self.measure_lines(problem)
        labels = self.write_data(problem, centres, names is None and not has_domain)
        for centre, label in zip(centres, labels, strict=True):
            for epsilon in epsilons:
                region = _ball(problem, self.kind, centre, epsilon, clip, held)
                robust = region & (problem.labels == label)
                problem.regions.append(region)
                problem.cases.append({"robust": robust, "fragile": region & ~robust})
        problem.property.write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        return problem

    def integers_only(self) -> list[Drawn]:
        lows = [self.rng.randint(-3, 5) for _ in range(self.rng.randint(1, 4))]
        return [int_feature(f"f{i}", range(low, low + self.rng.randint(1, 4))) for i, low in enumerate(lows)]

    def span(
        self,
        features: list[Drawn],
        centres: list[tuple[int, ...]],
        epsilons: list[Fraction],
        clip: tuple[Fraction, Fraction] | None,
    ) -> tuple[list[Drawn], list[tuple[int, ...]], tuple[Fraction, Fraction] | None]:
        """Integer features wide enough for every ball, the centres in their positions, and clip (which l0 needs)."""
        reach = math.floor(max(epsilons))
        spans = []
        for place, feature in enumerate(features):
            used = [int(feature.numbers[centre[place]]) for centre in centres]
            spans.append((min(used), max(used)))
        if self.kind == "l0":
            low, high = min(a for a, _ in spans), max(b for _, b in spans)
            above = self.rng.choice((0, Fraction(1, 2), 1))
            clip = clip or (Fraction(low - self.rng.randint(0, 1)), Fraction(high) + above)
            spans = [(math.ceil(clip[0]), math.floor(clip[1]))] * len(features)
        else:
            spans = [(a - reach, b + reach) for a, b in spans]
            if clip is not None:
                spans = [(max(a, math.ceil(clip[0])), min(b, math.floor(clip[1]))) for a, b in spans]
        wide = [int_feature(f.name, range(a, b + 1)) for f, (a, b) in zip(features, spans, strict=True)]
        moved = [
            tuple(int(f.numbers[p]) - a for f, p, (a, _) in zip(features, centre, spans, strict=True))
            for centre in centres
        ]
        return wide, moved, clip

    def clip(self, listed: list[Drawn], centres: list[tuple[int, ...]]) -> tuple[Fraction, Fraction] | None:
        """Bounds on or a little beyond the centres, the same for all numeric features."""
        values = [f.meanings[c[i]] for c in centres for i, f in enumerate(listed) if f.kind in NUMERIC]
        numbers = [v for v in values if isinstance(v, Fraction)]
        if not numbers:
            return None
        margin = self.rng.choice((0, Fraction(1, 10), 1, 3, Fraction(1, 2**150)))
        return min(numbers) - margin, max(numbers) + self.rng.choice((margin, 0))

    def epsilons(self, listed: list[Drawn], centres: list[tuple[int, ...]]) -> list[Fraction]:
        if self.kind == "l0":
            several = ((0,), (1,), (2,), (2,), (3,), (1, 2, 3), (Fraction(3, 2),), (Fraction(7, 10),))
            return [Fraction(e) for e in self.rng.choice(several)]
        found = []
        for _ in range(self.rng.choice((1, 1, 2))):
            # The distance of a random input, exactly or almost.
            steps = [Fraction(0)]
            for place, feature in enumerate(listed):
                value = feature.meanings[self.rng.choice(centres)[place]]
                if feature.kind in NUMERIC and isinstance(value, Fraction):
                    steps.append(abs(self.rng.choice(feature.numbers) - value))
            distance = max(steps) if self.kind == "linf" else sum(steps)
            off = self.rng.choice((0, 0, 0, Fraction(1, 10**9), -Fraction(1, 10**9), Fraction(1, 2)))
            found.append(max(Fraction(0), distance + off))
        return list(dict.fromkeys(found))

    def held(self, listed: list[Drawn]) -> list[Drawn]:
        """Features that stay at their value; under l1 the float32 ones must."""
        share = self.rng.choice((0.0, 0.0, 0.3))
        return [f for f in listed if self.rng.random() < share or (self.kind == "l1" and f.kind == "float32")]

    def write_data(self, problem: Problem, centres: list[tuple[int, ...]], in_order: bool) -> list[str]:
        """The rows as a CSV file among rows that nobody asks for, and the label that counts as right for each."""
        columns: list[tuple[str, Callable[[tuple[int, ...]], str]]] = []
        for place, feature in enumerate(problem.features):
            if feature.is_onehot and self.rng.random() < 0.7:
                for level, column in enumerate(feature.columns):
                    columns.append((column, lambda c, p=place, k=level: str(int(c[p] == k))))  # type: ignore[misc]
            else:
                columns.append((feature.name, lambda c, p=place, f=feature: f.texts[c[p]]))  # type: ignore[misc]
        own = [str(problem.labels[self.row_of(problem, centre)]) for centre in centres]
        labels = own
        label_line = ""
        if self.tells_labels():
            known = sorted(set(problem.labels.tolist()))
            labels = [self.rng.choice(known) if self.rng.random() < 0.3 else label for label in own]
            rest = iter(labels)
            columns.append(("target", lambda c: ""))
            label_line = ", label: target"
        if not in_order:
            self.rng.shuffle(columns)
        before = self.rng.randint(0, 2)
        records = [[name for name, _ in columns]]
        for number in range(before + len(centres)):
            centre = centres[max(0, number - before)]
            record = [cell(centre) for _, cell in columns]
            if label_line:
                place = next(i for i, (name, _) in enumerate(columns) if name == "target")
                record[place] = own[0] if number < before else next(rest)
            records.append(record)
        text = "".join(",".join(f'"{cell}"' for cell in record) + "\n" for record in records)
        (self.folder / "data.csv").write_text(text, encoding="utf-8")
        rows = f'"{before}-{before + len(centres) - 1}"'
        self.lines.append(f"inputs: {{file: data.csv, rows: {rows}{label_line}}}")
        return labels

    def tells_labels(self) -> bool:
        """Whether the data file says which label is right; else it is the model's own."""
        return self.rng.random() < 0.5

    @staticmethod
    def row_of(problem: Problem, centre: tuple[int, ...]) -> int:
        sizes = [f.size for f in problem.features]
        return int(np.ravel_multi_index(centre, sizes))


def _confusion(prefix: str, said: Mask, truth: Mask) -> dict[str, Mask]:
    return {
        f"{prefix}tp": said & truth, f"{prefix}fp": said & ~truth,
        f"{prefix}tn": ~said & ~truth, f"{prefix}fn": ~said & truth,
    }  # fmt: skip


def _ball(
    problem: Problem,
    norm: str,
    centre: tuple[int, ...],
    epsilon: Fraction,
    clip: tuple[Fraction, Fraction] | None,
    held: list[Drawn],
) -> Mask:
    """The inputs within ε of the centre, by the definition."""
    inside = np.ones(len(problem.positions), np.bool_)
    distance = np.zeros(len(problem.positions), object)
    for place, feature in enumerate(problem.features):
        own = feature.meanings[centre[place]]
        allowed, away = [], []
        for position, value in enumerate(feature.meanings):
            fits = feature not in held or position == centre[place]
            far = Fraction(int(position != centre[place]))
            if feature.kind in NUMERIC:
                if clip is not None:
                    fits = fits and isinstance(value, Fraction) and clip[0] <= value <= clip[1]
                if norm != "l0":
                    fits = fits and isinstance(value, Fraction)
                    far = abs(value - own) if isinstance(value, Fraction) and isinstance(own, Fraction) else far
            elif norm != "l0":
                fits, far = position == centre[place], Fraction(0)
            allowed.append(fits and (norm != "linf" or far <= epsilon))
            away.append(far)
        inside &= np.array(allowed)[problem.positions[:, place]]
        distance = distance + np.array(away, object)[problem.positions[:, place]]
    if norm == "linf":
        return inside
    return inside & np.array(distance <= epsilon, np.bool_)
