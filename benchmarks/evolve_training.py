"""Trains recurrent selectors for online bin packing: several ways to make instances, several ways to train.

    python benchmarks/evolve_training.py --models FOLDER [--only evolved-more] [--epochs 60]

needs TensorFlow. The networks are those of the document that `quantify evolve` follows: one GRU of 32 units and a
softmax over best fit and first fit. Instances have 120 sizes from 20 to 100 and bins hold 150. For each way the best
epoch by validation accuracy is kept as FOLDER/NAME.keras, and what it reaches on instances that it never saw is written
to benchmarks/results/evolve_training.json: on instances that were made together with its training instances, and on
instances made afresh with another seed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantify.dataset.packing import Packing, draw, generate, pack

RESULTS = Path(__file__).parent / "results" / "evolve_training.json"
ITEMS = 120
TEST = 400
"""As many as the document tests on."""
DOMAIN = Packing()
Sets = tuple[NDArray[np.int64], NDArray[np.int8]]


# --- instances -------------------------------------------------------------------------------------------------------
def rejection(count: int, seed: int) -> Sets:
    """Independent draws, kept until each solver has won half of them."""
    return generate(count, ITEMS, seed, balance="rejection")


def search(count: int, seed: int) -> Sets:
    """Independent draws, each changed by hill climbing until its solver leads clearly."""
    return generate(count, ITEMS, seed, balance="search")


def evolved(count: int, seed: int, *, population: int = 50, generations: int = 50, runs: int = 20) -> Sets:
    """Instances from evolutionary runs, `runs` for each solver, that maximise its lead: those of a run are related.

    A run starts from draws; tournaments of two, one-point crossover, and a new draw for each item with probability
    1/items. Generations after the first fifty give the distinct instances that the solver wins, until there are enough.
    """
    rng = np.random.default_rng([seed, ITEMS, 7])
    found: list[NDArray[np.int64]] = []
    winners: list[int] = []
    for run in range(2 * runs):
        solver = run % 2
        half = (count + 1 - solver) // 2
        wanted = half * (run // 2 + 1) // runs - half * (run // 2) // runs
        rows = _run(rng, solver, wanted, population, generations)
        found.append(rows)
        winners.extend([solver] * len(rows))
    order = rng.permutation(count)
    return np.concatenate(found)[order], np.array(winners, np.int8)[order]


def _run(rng: np.random.Generator, solver: int, wanted: int, population: int, generations: int) -> NDArray[np.int64]:
    now = draw(DOMAIN, (population, ITEMS), rng)
    kept: dict[bytes, NDArray[np.int64]] = {}
    generation = 0
    while len(kept) < wanted:
        if generation >= generations:
            for row in now[DOMAIN.winners(now) == solver]:
                kept.setdefault(row.tobytes(), row)
        lead = _lead(now, solver)
        pairs = rng.integers(population, size=(2, population, 2))
        mothers, fathers = (np.where(lead[pair[:, 0]] >= lead[pair[:, 1]], pair[:, 0], pair[:, 1]) for pair in pairs)
        cut = rng.integers(1, ITEMS, population)[:, None]
        now = np.where(np.arange(ITEMS) < cut, now[mothers], now[fathers])
        changed = rng.random(now.shape) < 1 / ITEMS
        now[changed] = draw(DOMAIN, (int(changed.sum()),), rng)
        generation += 1
    return np.array(list(kept.values())[:wanted])


def _lead(instances: NDArray[np.int64], solver: int) -> NDArray[np.float64]:
    """By how much of the Falkenauer metric this solver leads."""
    best, first = (pack(instances, DOMAIN.capacity, name) for name in ("best_fit", "first_fit"))
    values = best.squares / best.bins - first.squares / first.bins
    return -values if solver else values


# --- training --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Way:
    """One way to make instances and to train on them."""

    make: Callable[[int, int], Sets]
    count: int
    """Instances made together; of them 400 are kept for the test, a tenth of the others validates."""
    batch: int
    rate: float
    epochs: int


WAYS = {
    "rejection-document": Way(rejection, 2000, 32, 0.001, 60),
    "rejection-more": Way(rejection, 8000, 64, 0.003, 30),
    "search-document": Way(search, 2000, 32, 0.001, 60),
    "search-more": Way(search, 8000, 64, 0.003, 30),
    "evolved-document": Way(evolved, 2000, 32, 0.001, 120),
    "evolved-more": Way(evolved, 8000, 64, 0.003, 60),
    "evolved-many": Way(partial(evolved, runs=200), 8000, 64, 0.003, 60),
}


def network(rate: float) -> Any:
    """A GRU of 32 units; sizes are brought to about −2…2 inside the network."""
    import keras

    model = keras.Sequential(
        [
            keras.layers.Input((ITEMS, 1)),
            keras.layers.Rescaling(1 / 20, offset=-3.0),
            keras.layers.GRU(32),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.Adam(rate, clipnorm=1.0)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=True)
    return model


def train(name: str, way: Way, folder: Path, epochs: int) -> dict[str, Any]:
    """Train, keep the best epoch's network, and say what it reaches."""
    import keras

    started = time.perf_counter(), time.process_time()
    keras.utils.set_random_seed(1)
    instances, winners = way.make(way.count, 1)
    rest = way.count - TEST
    learn = rest - rest // 10
    given = instances.astype(np.float32)[:, :, None]
    path = folder / f"{name}.keras"
    model = network(way.rate)
    history = model.fit(
        given[:learn],
        winners[:learn],
        validation_data=(given[learn:rest], winners[learn:rest]),
        validation_batch_size=learn,
        batch_size=way.batch,
        epochs=epochs,
        verbose=2,
        callbacks=[keras.callbacks.ModelCheckpoint(path, monitor="val_accuracy", save_best_only=True)],
    ).history
    model = keras.models.load_model(path, compile=False)
    fresh, fresh_winners = way.make(2000, 2)
    return {
        "way": name,
        "trained_on": learn,
        "epochs": epochs,
        "training_accuracy": round(history["accuracy"][-1], 4),
        "validation_accuracy": round(max(history["val_accuracy"]), 4),
        "test": accuracy(model, instances[rest:], winners[rest:]),
        "made_afresh": accuracy(model, fresh, fresh_winners),
        "seconds": round(time.perf_counter() - started[0]),
        "processor_seconds": round(time.process_time() - started[1]),
    }


def accuracy(model: Any, instances: NDArray[np.int64], winners: NDArray[np.int8]) -> dict[str, float]:
    """Share that the network gets right, of all and of those that each solver wins."""
    given = instances.astype(np.float32)[:, :, None]
    right = model.predict(given, batch_size=1000, verbose=0).argmax(axis=1) == winners
    shares = {"all": right, "best_fit": right[winners == 0], "first_fit": right[winners == 1]}
    return {key: round(float(share.mean()), 4) for key, share in shares.items()}


def main() -> None:
    """Train what is asked for; results of other ways stay in the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=Path, required=True, help="folder for the networks")
    parser.add_argument("--only", choices=WAYS, nargs="*", default=list(WAYS))
    parser.add_argument("--epochs", type=int, help="instead of each way's own")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    given.models.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(given.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    for name in given.only:
        found = train(name, WAYS[name], given.models, given.epochs or WAYS[name].epochs)
        print(json.dumps(found), flush=True)
        known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
        kept = [*(entry for entry in known if entry["way"] != name), found]
        kept.sort(key=lambda entry: list(WAYS).index(entry["way"]))
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
