"""Records what Keras answers for recurrent networks: run it where TensorFlow is installed.

    python tests/data/record_recurrent.py [TRAINED.keras]

writes recurrent_recorded.npz beside itself: of random networks the file's bytes, instances and Keras's probabilities.
TRAINED.keras, a network of benchmarks/evolve_training.py, is kept beside it without its optimiser as
bin_packing_gru.keras, and recorded like the others.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
TRAINED = HERE / "bin_packing_gru.keras"
INSTANCES = 40


def networks() -> list[tuple[str, Any]]:
    """File endings and untrained networks, with biases that are not zero."""
    import keras

    layers = keras.layers

    def scaled() -> Any:
        return layers.Rescaling(1 / 20, offset=-3.0)

    def softmax() -> Any:
        return layers.Dense(2, activation="softmax")

    chains = [
        ("keras", [layers.Input((30, 1)), scaled(), layers.GRU(32), softmax()]),
        ("h5", [layers.Input((None, 1)), scaled(), layers.GRU(13, reset_after=False),
                layers.Dense(1, activation="sigmoid")]),
        ("keras", [layers.Input((25, 1)), scaled(), layers.LSTM(11), layers.Dropout(0.5),
                   layers.Dense(3, activation="tanh"), layers.Dense(2), layers.Softmax()]),
        ("h5", [layers.Input((20, 1)), scaled(), layers.GRU(8, return_sequences=True, use_bias=False), layers.LSTM(5),
                softmax()]),
        ("keras", [layers.Input((30,)), layers.Reshape((30, 1)), scaled(), layers.LSTM(6, return_sequences=True),
                   layers.GRU(7, reset_after=False, dropout=0.2, recurrent_dropout=0.2), softmax()]),
    ]  # fmt: skip
    found = []
    for seed, (ending, chain) in enumerate(chains):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential(chain)
        rng = np.random.default_rng(seed)
        for weight in model.weights:
            if "bias" in weight.path:
                weight.assign(rng.normal(0, 0.5, weight.shape))
        found.append((ending, model))
    return found


def main() -> None:
    """Write the files."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras

    if len(sys.argv) > 1:
        trained = keras.models.load_model(sys.argv[1], compile=False)
        trained.save(TRAINED)
    models = networks()
    stored: dict[str, Any] = {}
    rng = np.random.default_rng(0)
    for number, (ending, model) in enumerate(models):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"m.{ending}"
            model.save(path)
            data = path.read_bytes()
        stored |= record(f"{number}", model, rng) | {
            f"ending_{number}": ending,
            f"model_{number}": np.frombuffer(data, np.uint8),
        }
    stored |= record("trained", keras.models.load_model(TRAINED, compile=False), rng)
    np.savez_compressed(HERE / "recurrent_recorded.npz", **stored)


def record(name: str, model: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Instances and what the network makes of them."""
    length = model.input_shape[1] or 28
    instances = np.clip(np.rint(rng.normal(60, 20, (INSTANCES, length))), 20, 100).astype(np.int64)
    given = instances.astype(np.float32).reshape(INSTANCES, *(size or length for size in model.input_shape[1:]))
    return {f"instances_{name}": instances, f"outputs_{name}": model.predict(given, verbose=0)}


if __name__ == "__main__":
    main()
