"""Records what TensorFlow Lite's interpreter answers with its reference kernels: run it where TensorFlow is installed.

    python tests/data/record_tflite.py

writes tflite_recorded.npz beside itself: for each model its bytes, int8 inputs and the interpreter's int8 tensors.
The first model is a convolutional network trained on scikit-learn's digits and converted; the others are random.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
RANDOM = 14


def digits() -> bytes:
    """A full-integer digits model, as the converter makes it."""
    import keras
    import tensorflow as tf
    from sklearn.datasets import load_digits

    keras.utils.set_random_seed(1)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 8, 8, 1)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(6, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(images, labels, epochs=8, verbose=0)
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([image[None]] for image in images[:300])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    converted: bytes = converter.convert()
    return converted


def answers(data: bytes, inputs: Any) -> Any:
    """The interpreter's output tensor for each row."""
    from tensorflow.lite.python import interpreter as lite

    found = lite.Interpreter(model_content=data, experimental_op_resolver_type=lite.OpResolverType.BUILTIN_REF)
    found.allocate_tensors()
    given, result = found.get_input_details()[0], found.get_output_details()[0]
    rows = []
    for row in inputs:
        found.set_tensor(given["index"], row.reshape(given["shape"]))
        found.invoke()
        rows.append(found.get_tensor(result["index"]).reshape(-1))
    return np.array(rows)


def main() -> None:
    """Write the file."""
    sys.path.insert(0, str(HERE.parent / "support"))
    from tflite_random import random_chain

    models = [digits(), *(random_chain(np.random.default_rng(seed)).bytes() for seed in range(RANDOM))]
    rng = np.random.default_rng(0)
    stored = {}
    for number, data in enumerate(models):
        from tensorflow.lite.python import interpreter as lite

        shape = lite.Interpreter(model_content=data).get_input_details()[0]["shape"]
        inputs = rng.integers(-128, 128, (25, int(np.prod(shape))), dtype=np.int8)
        stored |= {
            f"model_{number}": np.frombuffer(data, np.uint8),
            f"inputs_{number}": inputs,
            f"outputs_{number}": answers(data, inputs),
        }
    np.savez_compressed(HERE / "tflite_recorded.npz", **stored)


if __name__ == "__main__":
    main()
