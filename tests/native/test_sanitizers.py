"""The native code under AddressSanitizer and UndefinedBehaviourSanitizer: the engines' own tests in a child process.

Each engine that has native code adds the tests that drive it to `DRIVEN`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g1", "-O0",
         "-ftrivial-auto-var-init=pattern"]  # fmt: skip
"""Not optimised: the vector kernels take a minute to compile otherwise, and what is slow here is Python. Variables that
nobody sets hold a pattern that spoils any count."""
DRIVEN = [
    ("tests/unit/test_boxes.py", "native or label_counts or bits or budget or single_leaf"),
    ("tests/unit/test_enumerate_network.py", "words or ties or odd or pieces or maxima or rescaling or witnesses"),
    ("tests/differential/test_networks.py", "plain_python and not cbmc and (0-19 or 40-59)"),
    ("tests/unit/test_branch.py", "plane or volumes or single_point or sums_of_scores"),
    ("tests/unit/test_branch_edges.py", "doubt or biases"),
    (
        "tests/unit/test_branch_reduced.py",
        "(boxes_counted and (0- or 4-)) or kink or (sketches and 2) or (descents and (0- or 2- or 5-))",
    ),
    ("tests/unit/test_evaluate.py", "definition or width or counts"),
    ("tests/unit/test_enumerate.py", "every_way or odd_widths or split or beyond or witnesses or deadline"),
    ("tests/unit/test_slices.py", "random or unions or twelve or packed or workers or hashes or first_rows"),
    ("tests/unit/test_sample.py", "words or region or ball or weights or arithmetic or threads"),
    ("tests/unit/test_packing.py", "brute_force or hand or equal"),
    ("tests/unit/test_recurrent.py", "every_batch"),
]
"""Test file and which of its tests (pytest's -k; "" for all): Python is slow under these tools."""
BUILD = """
import sys
from pathlib import Path
sys.path.insert(0, "native")
import build_ffi
build_ffi.build(Path(sys.argv[1]), sys.argv[2:])
"""
# The module is loaded from the scratch folder under its real name before anything else can import the ordinary one.
START = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("quantify.engines._native", sys.argv[1])
import quantify.engines
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = quantify.engines._native = module
spec.loader.exec_module(module)
import pytest
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", *sys.argv[2:]]))
"""


def runtime(name):
    """Path of a sanitizer's run-time library, or None when gcc has none."""
    answer = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=False).stdout
    path = Path(answer.strip())
    return path if path.is_absolute() and path.exists() else None


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory):
    """The native module built with both sanitizers."""
    try:
        library = runtime("libasan.so")
    except FileNotFoundError:
        library = None
    if library is None:
        pytest.skip("gcc with its sanitizer libraries is not installed")
    target = tmp_path_factory.mktemp("sanitized")
    subprocess.run([sys.executable, "-c", BUILD, str(target), *FLAGS], cwd=ROOT, check=True, capture_output=True)
    return target / "_native.abi3.so", library


def run(sanitized, arguments, code=START):
    module, library = sanitized
    environment = os.environ | {
        "LD_PRELOAD": str(library),
        "PYTHONPATH": str(ROOT),
        "PYTHONMALLOC": "malloc",
        # Python itself leaks at exit by design.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    command = [sys.executable, "-c", code, str(module), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=1500)


@pytest.mark.slow
@pytest.mark.parametrize(("tests", "chosen"), DRIVEN)
def test_no_sanitizer_complains(sanitized, tests, chosen):
    finished = run(sanitized, [tests, "-k", chosen])
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "runtime error" not in finished.stderr
    assert " passed" in finished.stdout


@pytest.mark.slow
def test_the_sanitizer_is_awake(sanitized):
    """A tree that was spoilt behind the engine's back is caught, so silence above means something."""
    code = (
        START.split("import pytest")[0]
        + """
import numpy as np
from quantify.engines.descent import prepare
from quantify.ir.domain import Measure
from quantify.ir.problem import GridProblem, GridTree
ready = prepare(GridProblem((4,), 1, GridTree((0, -1), (2, 0), (4, 0), (1, -1), (1, -1), (-1, 0)), Measure(), ()))
ready._native.nodes[0].left = 2
ready.residuals(np.array([[0]]), np.array([[4]]))
"""
    )
    finished = run(sanitized, [], code)
    assert finished.returncode != 0
    assert "AddressSanitizer" in finished.stderr
