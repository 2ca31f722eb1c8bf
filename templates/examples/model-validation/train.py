"""Make synthetic loan applications and train a small network on them with NumPy, five times; image/ does it for images.

Writes data/ (suite, training rows, and tuning rows that somebody mixed with the suite), seed_1.nnet to seed_5.nnet and
model.nnet, the one that is to be released. Nothing is downloaded, and every seed is fixed.
"""

import json
import pathlib
import runpy

import numpy as np

FEATURES = ["income", "debt_ratio", "years_employed", "late_payments"]
LOW = np.array([10, 0, 0, 0])
HIGH = np.array([150, 1, 40, 10])
HIDDEN = 6
SEEDS = 5


def applications(count, random):
    """Rows of the four features, and 1 for a loan that was paid back; what people earn and owe says it in part."""
    rows = np.stack(
        [
            np.clip(random.gamma(4, 14, count), 10, 150).round(),
            random.beta(2, 3, count).round(2),
            np.minimum(random.exponential(7, count), 40).round(),
            np.minimum(random.poisson(1.2, count), 10),
        ],
        axis=1,
    )
    income, debt, years, late = rows.T
    merit = 0.045 * (income - 50) - 5.5 * (debt - 0.4) + 0.09 * (years - 6) - 0.9 * (late - 1.2)
    return rows, (merit + random.logistic(0, 0.35, count) > 0).astype(int)


def train(rows, labels, seed, hidden=HIDDEN, epochs=60, rate=0.05):
    """One hidden layer of ReLUs, softmax, plain gradient descent on batches; inputs are normalised."""
    random = np.random.default_rng(seed)
    mean, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    x, y = (rows - mean) / spread, np.eye(2)[labels]
    first = random.normal(0, np.sqrt(2 / x.shape[1]), (x.shape[1], hidden))
    second = random.normal(0, np.sqrt(2 / hidden), (hidden, 2))
    weights = [first, np.zeros(hidden), second, np.zeros(2)]
    for _ in range(epochs):
        for batch in np.array_split(random.permutation(len(x)), max(1, len(x) // 32)):
            inner = np.maximum(x[batch] @ weights[0] + weights[1], 0)
            scores = inner @ weights[2] + weights[3]
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            error = (shares / shares.sum(axis=1, keepdims=True) - y[batch]) / len(batch)
            back = (error @ weights[2].T) * (inner > 0)
            steps = [x[batch].T @ back, back.sum(axis=0), inner.T @ error, error.sum(axis=0)]
            weights = [weight - rate * step for weight, step in zip(weights, steps, strict=True)]
    first, bias, second, last = weights
    # The normalisation becomes part of the first layer: the file takes the features as they are.
    return first / spread[:, None], bias - (mean / spread) @ first, second, last


def save(path, weights, decimals=4):
    """The network as a .nnet file: text, a row of weights a line."""
    first, bias, second, last = (np.round(weight, decimals) for weight in weights)
    inputs, hidden, outputs = first.shape[0], first.shape[1], second.shape[1]

    def line(values):
        return ",".join(f"{value:.{decimals}f}" for value in values) + ","

    wide = ["-1000000.0"] * inputs, ["1000000.0"] * inputs
    lines = [f"2,{inputs},{outputs},{max(inputs, hidden, outputs)},", f"{inputs},{hidden},{outputs},", "0,"]
    lines += [",".join(side) + "," for side in wide]
    lines += [",".join(["0.0"] * (inputs + 1)) + ",", ",".join(["1.0"] * (inputs + 1)) + ","]
    for matrix, offset in ((first, bias), (second, last)):
        lines += [line(row) for row in matrix.T] + [f"{value:.{decimals}f}," for value in offset]
    pathlib.Path(path).write_text("\n".join(lines) + "\n")


def write(path, rows, labels, prefix=""):
    """Cases or training rows as JSON lines."""
    with open(path, "w") as file:
        for number, (row, label) in enumerate(zip(rows, labels, strict=True)):
            values = {name: round(float(value), 2) for name, value in zip(FEATURES, row, strict=True)}
            identity = {"id": f"{prefix}{number}"} if prefix else {}
            file.write(json.dumps({**identity, "features": values, "label": int(label)}) + "\n")


def distinct(rows, labels, taken):
    """Rows whose features nobody has yet: the suite must not be in the training data."""
    kept = []
    for place, row in enumerate(map(tuple, rows.tolist())):
        if row not in taken:
            taken.add(row)
            kept.append(place)
    return rows[kept], labels[kept]


def main():
    data = pathlib.Path("data")
    data.mkdir(exist_ok=True)
    random = np.random.default_rng(2026)
    taken = set()
    suite, expected = distinct(*applications(420, random), taken)
    suite, expected = suite[:300], expected[:300]
    taken = set(map(tuple, suite.tolist()))
    rows, labels = distinct(*applications(2500, random), taken)
    write(data / "suite.jsonl", suite, expected, prefix="case-")
    write(data / "training.jsonl", rows, labels)
    # Somebody tuned on rows among which five cases of the suite are.
    write(data / "tuning.jsonl", np.concatenate([rows[:200], suite[:5]]), np.concatenate([labels[:200], expected[:5]]))
    for seed in range(1, SEEDS + 1):
        # Each seed draws its own training rows: a recipe is the data as well.
        own = np.random.default_rng(seed).choice(len(rows), 250, replace=False)
        save(f"seed_{seed}.nnet", train(rows[own], labels[own], seed))
    save("model.nnet", train(rows, labels, 0))
    print(f"model.nnet and five seeds, {len(rows)} training rows, a suite of {len(suite)} cases")
    runpy.run_path("image/train.py", run_name="__main__")


if __name__ == "__main__":
    main()
