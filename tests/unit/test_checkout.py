"""A native module that was built from other sources than the checkout's is refused; installations are left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import quantify
from quantify.engines import checkout
from quantify.errors import QuantifyError

ROOT = Path(__file__).resolve().parents[2]
DIGEST = "import build_ffi; print(build_ffi.sources_digest())"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder like `native/`, with a module beside it that carries the digest that the build script gives."""
    folder = tmp_path / "native"
    folder.mkdir()
    (folder / "build_ffi.py").write_bytes((ROOT / "native" / "build_ffi.py").read_bytes())
    (folder / "some.c").write_text("int f(void) { return 1; }\n")
    (folder / "some.inc").write_text("/* part */\n")
    done = subprocess.run([sys.executable, "-B", "-c", DIGEST], cwd=folder, check=True, capture_output=True, text=True)
    (tmp_path / "module.so").write_bytes(
        b"\x7fELF quantify-native-sources:" + done.stdout.strip().encode() + b"\0 more"
    )
    return folder


def test_what_was_built_from_these_sources_is_taken(tmp_path: Path, sources: Path) -> None:
    (sources / "notes.txt").write_text("no source")
    checkout.check(tmp_path / "module.so", sources)


@pytest.mark.parametrize("name", ["some.c", "some.inc", "build_ffi.py", "new.h"])
def test_what_was_built_from_others_is_refused(tmp_path: Path, sources: Path, name: str) -> None:
    with (sources / name).open("a") as file:
        file.write("\n")
    with pytest.raises(QuantifyError, match="other sources") as caught:
        checkout.check(tmp_path / "module.so", sources)
    assert caught.value.hint == f"run: python {sources / 'build_ffi.py'}"


def test_a_module_from_before_digests_is_refused(tmp_path: Path, sources: Path) -> None:
    (tmp_path / "module.so").write_bytes(b"\x7fELF")
    with pytest.raises(QuantifyError):
        checkout.check(tmp_path / "module.so", sources)


def test_installations_and_missing_modules_are_left_alone(tmp_path: Path, sources: Path) -> None:
    checkout.check(tmp_path / "none.so", sources)
    (tmp_path / "module.so").write_bytes(b"other")
    checkout.check(tmp_path / "module.so", tmp_path / "nowhere")


def test_the_module_in_use_carries_a_digest() -> None:
    (module,) = (Path(quantify.__file__).parent / "engines").glob("_native*.so")
    assert checkout.MARK in module.read_bytes()
