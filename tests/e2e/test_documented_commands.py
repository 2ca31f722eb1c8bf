"""Every command that README.md and docs/ show is typed as shown, in order, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    "README.md", "docs/tutorial.md", "docs/properties.md", "docs/evidence.md", "docs/gate.md", "docs/suites.md",
    "docs/noise.md", "docs/slices.md", "docs/transfer.md", "docs/evolve.md",
]  # fmt: skip


def shell_blocks(document: str) -> list[str]:
    """The lines of all `sh` blocks, here-documents included, but those of make, which the suite is itself run by."""
    text = (ROOT / document).read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()]
    return [line for line in lines if not line.startswith("make ")]


@pytest.mark.slow
@pytest.mark.needs("cbmc")
@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_run_as_documented(document: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = "set -e\n" + "\n".join(shell_blocks(document))
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize(
    ("document", "least"),
    [
        ("README.md", 3),
        ("docs/tutorial.md", 9),
        ("docs/properties.md", 11),
        ("docs/evidence.md", 7),
        ("docs/gate.md", 5),
        ("docs/suites.md", 3),
        ("docs/noise.md", 2),
        ("docs/slices.md", 2),
        ("docs/transfer.md", 2),
        ("docs/evolve.md", 2),
    ],
)
def test_documents_show_commands(document: str, least: int) -> None:
    assert sum(line.startswith("quantify ") for line in shell_blocks(document)) >= least
