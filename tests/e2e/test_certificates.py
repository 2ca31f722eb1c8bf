"""`count --certificate` and `verify` as typed: what proves, what is refused, and with which exit code."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from quantify.report.json import schema

Run = Callable[..., subprocess.CompletedProcess[str]]

SIZES = (2, 6, 3)
PROPERTY = """property: safety
labels: [left, right, straight]
quantization: {mode: exact}
domain:
  features:
    - {name: a, type: int, min: -20, max: 20}
    - {name: b, type: int, min: -20, max: 20}
assume: "a >= -9"
assert: "label != 'right' or score[0] > 0"
"""


def layers() -> list[tuple[list[list[int]], list[int]]]:
    draw = random.Random(2)
    return [
        (
            [[draw.randint(-9, 9) for _ in range(before)] for _ in range(after)],
            [draw.randint(-20, 20) for _ in range(after)],
        )
        for before, after in itertools.pairwise(SIZES)
    ]


def scores(a: int, b: int) -> list[int]:
    (first, first_bias), (last, last_bias) = layers()
    hidden = [max(0, w[0] * a + w[1] * b + bias) for w, bias in zip(first, first_bias, strict=True)]
    return [sum(x * y for x, y in zip(w, hidden, strict=True)) + bias for w, bias in zip(last, last_bias, strict=True)]


def violates(a: int, b: int) -> bool:
    found = scores(a, b)
    return found.index(max(found)) == 1 and not found[0] > 0


TRUTH = sum(violates(a, b) for a in range(-9, 21) for b in range(-20, 21))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    lines = ["// by hand", "2,2,3,6,", "2,6,3,", "0,", "-20,-20,", "20,20,", "0,0,0,", "1,1,1,"]
    for weights, biases in layers():
        lines += [",".join(map(str, row)) + "," for row in weights] + [f"{bias}," for bias in biases]
    (tmp_path / "model.nnet").write_text("\n".join(lines) + "\n")
    (tmp_path / "p.yaml").write_text(PROPERTY)
    return tmp_path / "model.nnet"


COUNT = ("count", "model.nnet", "--property", "p.yaml", "--certificate", "c.cert")
VERIFY = ("verify", "model.nnet", "--certificate", "c.cert")


def answer(done: subprocess.CompletedProcess[str], code: int = 0) -> dict[str, Any]:
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_count_is_proven_by_its_certificate_alone(quantify: Run, model: Path) -> None:
    counted = answer(quantify(*COUNT, "--engine", "branch", "--json", "-"))
    assert int(counted["counts"]["violated"]["lower"]) == int(counted["counts"]["violated"]["upper"]) == TRUTH > 0
    size = (model.parent / "c.cert").stat().st_size
    (model.parent / "p.yaml").unlink()  # its text is in the certificate
    found = answer(quantify(*VERIFY, "--json", "-"))
    jsonschema.validate(found, schema("verify"))
    assert found["verified"]
    assert found["certificate"]["bytes"] == size
    assert found["certificate"]["leaves"] == sum(found["cases"][0]["leaves"].values()) > 10
    counts = found["cases"][0]["counts"]
    assert counts["violated"] == {"lower": str(TRUTH), "upper": str(TRUTH)}
    assert counts["satisfied"] == {"lower": str(30 * 41 - TRUTH), "upper": str(30 * 41 - TRUTH)}
    shown = quantify(*VERIFY, "--jobs", 2)
    assert shown.returncode == 0
    assert "verified" in shown.stdout
    assert f"{size:,} bytes" in shown.stdout


def test_without_the_native_module_the_check_is_the_same(quantify: Run, model: Path) -> None:
    answer(quantify(*COUNT, "--json", "-"))
    blocked = (
        "import sys; sys.modules['quantify.engines._native'] = None; "
        "from quantify.cli.main import run; sys.exit(run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", blocked, *VERIFY, "--json", "-"],
        check=False, cwd=model.parent, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert answer(done)["verified"]


def test_a_false_count_is_refuted(quantify: Run, model: Path) -> None:
    answer(quantify(*COUNT, "--json", "-"))
    path = model.parent / "c.cert"
    text = gzip.decompress(path.read_bytes())
    body = text[: text.rindex(b'{"sha256"')].replace(
        b'"violated":["%d","%d"]' % (TRUTH, TRUTH), b'"violated":["0","0"]'
    )
    path.write_bytes(gzip.compress(body + b'{"sha256":"%s"}\n' % hashlib.sha256(body).hexdigest().encode()))
    done = quantify(*VERIFY, "--json", "-")
    found = answer(done, 4)
    jsonschema.validate(found, schema("verify"))
    assert not found["verified"]
    assert f"add up to {TRUTH:,} for violated" in found["cases"][0]["refuted"]
    assert "refuted" in done.stderr
    path.write_bytes(gzip.compress(body + text[len(text) - 78 :]))
    done = quantify(*VERIFY)
    assert done.returncode == 2
    assert "damaged" in done.stderr


def test_other_files_are_bad_input(quantify: Run, model: Path) -> None:
    answer(quantify(*COUNT, "--json", "-"))
    folder = model.parent
    (folder / "other.nnet").write_text(model.read_text().replace("by hand", "by another hand"))
    done = quantify("verify", "other.nnet", "--certificate", "c.cert")
    assert (done.returncode, "another model" in done.stderr) == (2, True)
    (folder / "q.yaml").write_text(PROPERTY.replace("-9", "-8"))
    done = quantify(*VERIFY, "--property", "q.yaml")
    assert (done.returncode, "another property" in done.stderr) == (2, True)
    assert quantify(*VERIFY, "--property", "p.yaml").returncode == 0
    whole = (folder / "c.cert").read_bytes()
    for content in (whole[: len(whole) // 2], b"", whole[:-8], model.read_bytes()):
        (folder / "c.cert").write_bytes(content)
        assert quantify(*VERIFY).returncode == 2
    done = quantify("verify", "model.nnet", "--certificate", "none")
    assert (done.returncode, "cannot be read" in done.stderr) == (2, True)


def test_bounds_are_certified_too(quantify: Run, model: Path) -> None:
    fine = PROPERTY.replace("type: int, min: -20, max: 20", "type: fixed, min: -20, max: 20, step: 0.01")
    (model.parent / "p.yaml").write_text(fine)
    truth = int(answer(quantify(*COUNT[:4], "--engine", "enumerate", "--json", "-"))["counts"]["violated"]["lower"])
    # A spent limit still lets one round of boxes pass, on machines of every speed.
    counted = answer(quantify(*COUNT, "--timeout", "1e-9", "--json", "-"), 3)["counts"]["violated"]
    assert int(counted["lower"]) <= truth <= int(counted["upper"])
    case = answer(quantify(*VERIFY, "--json", "-"))["cases"][0]
    assert case["leaves"]["open"] > 0
    assert int(case["counts"]["violated"]["lower"]) <= truth <= int(case["counts"]["violated"]["upper"])
    assert quantify(*VERIFY, "--timeout", "1e-9").returncode == 3


def test_every_row_of_a_robustness_property_has_its_tree(quantify: Run, model: Path) -> None:
    (model.parent / "rows.csv").write_text("a,b\n0,0\n5,-5\n3,3\n")
    (model.parent / "p.yaml").write_text(
        "property: robustness\nlabels: [left, right, straight]\nquantization: {mode: exact}\n"
        'inputs: {file: rows.csv, rows: "0-2"}\nepsilon: [0, 4]\nnorm: linf\nclip: [-20, 20]\n'
    )
    counted = answer(quantify(*COUNT, "--json", "-"))["inputs"]
    done = quantify(*VERIFY)
    assert (done.returncode, "--property P.yaml" in done.stderr) == (2, True)
    found = answer(quantify(*VERIFY, "--property", "p.yaml", "--json", "-"))["cases"]
    assert len(found) == 6
    assert "6 of 6" in quantify(*VERIFY, "--property", "p.yaml").stdout
    for case, given in zip(found, counted, strict=True):
        assert case["counts"]["robust"]["lower"] == given["robust"]["lower"]
        assert case["total"] == given["total"]


def test_the_least_score_decides_where_the_property_says_so(quantify: Run, model: Path) -> None:
    text = PROPERTY.replace("quantization:", "decision: argmin\nquantization:").replace(" or score[0] > 0", "")
    (model.parent / "p.yaml").write_text(text)
    found = [scores(a, b) for a in range(-9, 21) for b in range(-20, 21)]
    truth, other = (sum(point.index(choose(point)) == 1 for point in found) for choose in (min, max))
    assert 0 < truth != other
    answer(quantify(*COUNT, "--json", "-"))
    verified = answer(quantify(*VERIFY, "--json", "-"))
    assert verified["cases"][0]["counts"]["violated"] == {"lower": str(truth), "upper": str(truth)}
    # The same tree for the other decision, as somebody would forge it: it is another problem.
    path = model.parent / "c.cert"
    lines = gzip.decompress(path.read_bytes())
    lines = lines[: lines.rindex(b'{"sha256"')]
    head = json.loads(lines[: lines.index(b"\n")])
    forged = text.replace("argmin", "argmax")
    head["property"] |= {"text": forged, "sha256": hashlib.sha256(forged.encode()).hexdigest()}
    body = json.dumps(head).encode() + lines[lines.index(b"\n") :]
    path.write_bytes(gzip.compress(body + b'{"sha256":"%s"}\n' % hashlib.sha256(body).hexdigest().encode()))
    done = quantify(*VERIFY)
    assert (done.returncode, "another problem" in done.stderr) == (2, True)


def test_what_keeps_no_tree_has_no_certificate(quantify: Run, model: Path) -> None:
    done = quantify(*COUNT, "--engine", "enumerate")
    assert (done.returncode, "branch" in done.stderr) == (2, True)
    assert quantify(*COUNT[:-1], "-").returncode == 2
    assert quantify(*COUNT[:-1], "no/c.cert").returncode == 2
    assert not list(model.parent.glob("*.cert*"))
