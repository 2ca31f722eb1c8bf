"""How often the interval of `quantify seeds` holds the true rate, by simulation; prints the tables of docs/seeds.md.

The model is beta-binomial: each seed's rate is drawn from a beta distribution with the true rate as its mean, and each
seed's successes are binomial. Between-seed variance is given as the intraclass correlation ρ: variance ρ·p(1 − p).

    python benchmarks/seeds_coverage.py [--recipes 20000]
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from quantify.dataset.recipe_interval import lower_ends

SEEDS = range(3, 11)
CASES = (50, 100, 300, 1000)
RATES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
CORRELATIONS = (0.0, 0.001, 0.003, 0.01, 0.02, 0.05, 0.08)
BEYOND = (0.1, 0.15, 0.2)
NOMINAL = 0.95


def held(
    seeds: int, cases: int, rate: float, correlation: float, recipes: int, random: np.random.Generator
) -> tuple[float, float]:
    """The share of simulated recipes whose interval holds the rate, and the mean width of the intervals."""
    own: np.ndarray | float = rate
    if correlation > 0:
        total = 1 / correlation - 1
        own = random.beta(rate * total, (1 - rate) * total, (recipes, seeds))
    rates = random.binomial(cases, own, (recipes, seeds)) / cases
    lower, upper = lower_ends(rates, cases, NOMINAL), 1 - lower_ends(1 - rates, cases, NOMINAL)
    return float(((lower <= rate) & (rate <= upper)).mean()), float((upper - lower).mean())


def main() -> None:
    """Simulate every setting and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", type=int, default=20000, help="simulated recipes a setting")
    recipes = parser.parse_args().recipes
    random = np.random.default_rng(20261130)
    found = {
        (seeds, cases, rate, correlation): held(seeds, cases, rate, correlation, recipes, random)
        for correlation in (*CORRELATIONS, *BEYOND)
        for seeds in SEEDS
        for cases in CASES
        for rate in RATES
    }
    print(f"{recipes:,} recipes a setting, {len(SEEDS) * len(CASES) * len(RATES)} settings a row")
    print("| ρ | sd at 0.5 | sd at 0.98 | least | mean | where the least is | mean width |")
    print("|---|---|---|---|---|---|---|")
    for correlation in (*CORRELATIONS, *BEYOND):
        rows = {key: value for key, value in found.items() if key[3] == correlation}
        least = min(rows, key=lambda key: rows[key][0])
        deviations = [math.sqrt(correlation * rate * (1 - rate)) for rate in (0.5, 0.98)]
        coverage, widths = zip(*rows.values(), strict=True)
        print(
            f"| {correlation:g} | {deviations[0]:.3f} | {deviations[1]:.3f} | {100 * rows[least][0]:.1f} % "
            f"| {100 * np.mean(coverage):.1f} % | k = {least[0]}, n = {least[1]}, p = {least[2]} "
            f"| {np.mean(widths):.3f} |"
        )
    print("\n| k | " + " | ".join(f"p = {rate}" for rate in RATES) + " |")
    print("|---|" + "---|" * len(RATES))
    for seeds in SEEDS:
        cells = [
            min(found[seeds, cases, rate, correlation][0] for cases in CASES for correlation in CORRELATIONS)
            for rate in RATES
        ]
        print(f"| {seeds} | " + " | ".join(f"{100 * cell:.1f} %" for cell in cells) + " |")


if __name__ == "__main__":
    main()
