"""What is built and installed holds everything that a user needs: templates, the native module, the right tag."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_sdist_builds_the_wheel(tmp_path: Path) -> None:
    """`build` makes the wheel from the unpacked sdist, so whatever the sdist lacks is missed here."""
    command = [sys.executable, "-m", "build", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (sdist,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    assert "-cp311-abi3-linux_" in wheel.name
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    shipped = {str(path.relative_to(ROOT)) for path in sources()}
    assert shipped - packed == set()
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    expected = {name for name in shipped if name.startswith("quantify/")}
    expected |= {f"quantify/{name}" for name in shipped if name.startswith("templates/")}
    assert expected - inside == set()
    assert "quantify/engines/_native.abi3.so" in inside
    assert any(name.endswith("licenses/LICENSE") for name in inside)


def sources() -> list[Path]:
    """Everything of the package, its native part and its templates, as it lies in the checkout."""
    folders = [ROOT / "quantify", ROOT / "native", ROOT / "templates"]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if "__pycache__" not in path.parts and path.suffix not in (".so", ".o", ".pyc")]
