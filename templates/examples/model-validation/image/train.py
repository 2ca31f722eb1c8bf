"""Draw pictures of metal sheets, some with a scratch; train a small network with NumPy to tell which: model.nnet."""

import json
import pathlib
import runpy

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent
SIDE = 16
COLUMNS = (3, 6, 9, 12)  # where the roller can scratch
CASES = 80


def sheets(count, random):
    """Grey pictures as rows of pixels, and 1 for a scratch: a bright line of 5 to 7 pixels in one of four columns."""
    pictures = random.uniform(90, 140, (count, 1, 1)) + random.normal(0, 7, (count, SIDE, SIDE))
    scratched = random.integers(0, 2, count)
    for place in np.flatnonzero(scratched):
        length, top = random.integers(5, 8), random.integers(0, SIDE - 7)
        pictures[place, top : top + length, random.choice(COLUMNS)] += random.uniform(50, 100)
    return np.clip(pictures.round(), 0, 255).astype(np.uint8), scratched


def main():
    shared = runpy.run_path(str(HERE.parent / "train.py"), run_name="shared")
    random = np.random.default_rng(7)
    pictures, scratched = sheets(3000, random)
    rows = pictures.reshape(len(pictures), -1).astype(float)
    shared["save"](HERE / "model.nnet", shared["train"](rows, scratched, seed=0, hidden=8, epochs=20), decimals=6)
    cases, labels = sheets(CASES, random)
    (HERE / "images").mkdir(exist_ok=True)
    with open(HERE / "sheets.jsonl", "w") as file:
        for number, (picture, label) in enumerate(zip(cases, labels, strict=True)):
            name = f"sheet-{number:02}"
            Image.fromarray(picture).save(HERE / "images" / f"{name}.png")
            file.write(json.dumps({"id": name, "image": f"images/{name}.png", "label": int(label)}) + "\n")
    print(f"image/model.nnet, a suite of {CASES} pictures")


if __name__ == "__main__":
    main()
