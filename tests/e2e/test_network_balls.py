"""ε-balls of a full-integer convolutional network, as typed: against draws and whole sub-balls through the reader."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from quantify.ir.model import Model
from quantify.readers import read_model

Answer = Callable[..., dict[str, Any]]

RECORDED = Path(__file__).resolve().parents[1] / "data" / "tflite_recorded.npz"
"""Its first model was trained on these digits and converted by TensorFlow; tests/unit checks it bit for bit."""
ROWS = (0, 3, 37)
"""Row 37 is contested: its ball holds two labels."""


@pytest.fixture
def images(tmp_path: Path) -> Any:
    with np.load(RECORDED) as recorded:
        (tmp_path / "digits.tflite").write_bytes(recorded["model_0"].tobytes())
    pixels, labels = load_digits(return_X_y=True)
    images = np.rint(pixels[list(ROWS)] * 255 / 16).astype(np.int64)
    np.savez(tmp_path / "images.npz", X=images, y=labels[list(ROWS)])
    return images


@pytest.fixture
def model(images: Any, tmp_path: Path) -> Model:
    return read_model(tmp_path / "digits.tflite", trust_pickle=False)


def labels(model: Model, points: Any) -> Any:
    """What the model says of pixels 0 … 255; it takes real numbers 0 … 1."""
    return model.predict(points / 255)


def write(folder: Path, more: str) -> None:
    (folder / "property.yaml").write_text(
        'property: robustness\nname: ball\ninputs: {file: images.npz, rows: "0-2"}\nnorm: linf\nclip: [0, 255]\n'
        f"preprocess: {{scale: 1/255}}\n{more}"
    )


def test_balls_of_an_integer_network(answer: Answer, images: Any, model: Model, tmp_path: Path) -> None:
    write(tmp_path, "epsilon: [1, 4]\n")
    found = answer("digits.tflite", "--property", "property.yaml")
    rng = np.random.default_rng(0)
    whole = 0
    assert [(entry["row"], entry["epsilon"]) for entry in found["inputs"]] == [
        (row, epsilon) for row in range(3) for epsilon in (1, 4)
    ]
    for entry in found["inputs"]:
        image, epsilon = images[entry["row"]], entry["epsilon"]
        low, high = np.maximum(image - epsilon, 0), np.minimum(image + epsilon, 255)
        total = int(np.prod((high - low + 1).astype(object)))
        assert int(entry["total"]) == total
        count = entry["robust"]
        assert count["engine"] == "margins"
        least, most = Fraction(int(count["lower"]), total), Fraction(int(count["upper"]), total)
        own = labels(model, image[None, :])[0]
        hits = int((labels(model, rng.integers(low, high + 1, (20_000, 64))) == own).sum())
        slack = Fraction(24, 1000)  # Hoeffding: beyond it with probability 2·exp(−2·20000·0.024²) = 2e-10
        assert least <= Fraction(hits, 20_000) + slack
        assert most >= Fraction(hits, 20_000) - slack
        if least == 1:
            assert hits == 20_000
            assert count["guarantee"] == "exact"
            whole += 1
    assert whole >= 4


@pytest.mark.parametrize("engine", ["auto", "margins"])
def test_a_part_of_the_ball_with_most_pixels_fixed(
    engine: str, answer: Answer, images: Any, model: Model, tmp_path: Path
) -> None:
    free = (10, 20, 21, 28, 35, 42)
    held = ", ".join(f"x{k}" for k in range(64) if k not in free)
    write(tmp_path, f"epsilon: 2\nfixed: [{held}]\n")
    found = answer("digits.tflite", "--property", "property.yaml", "--engine", engine)
    for entry in found["inputs"]:
        image = images[entry["row"]]
        ranges = [range(max(0, image[k] - 2), min(255, image[k] + 2) + 1) for k in free]
        points = np.repeat(image[None, :], len(list(itertools.product(*ranges))), axis=0)
        points[:, free] = list(itertools.product(*ranges))
        truth = int((labels(model, points) == labels(model, image[None, :])[0]).sum())
        assert int(entry["total"]) == len(points)
        assert int(entry["robust"]["lower"]) <= truth <= int(entry["robust"]["upper"])
        if engine == "auto":
            assert entry["robust"]["guarantee"] == "exact"
