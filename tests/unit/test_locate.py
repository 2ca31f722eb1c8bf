"""Finding CBMC, and unpacking it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quantify.errors import MissingToolError
from quantify.tools import fetch_cbmc, locate

GOOD = """#!/bin/sh
if [ "$1" = --version ]; then echo "6.6.0 (cbmc-6.6.0)"; exit; fi
while [ $# -gt 1 ]; do [ "$1" = --outfile ] && out=$2; shift; done
printf 'p cnf 5 1\\n1 0\\nc main::1::x!0@1#2 1 2 3 4\\n' > "$out"
"""
OLD = '#!/bin/sh\necho "5.12 (cbmc-5.12)"\n'
SILENT = "#!/bin/sh\nexit 0\n"
BROKEN = "#!/bin/sh\necho boom >&2\nexit 134\n"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def unpacked(prefix: Path, program: str = GOOD) -> Path:
    """A prefix as `fetch_cbmc` leaves it, with a loader that runs what it is given."""
    folder = prefix / "cbmc"
    script(folder / "bin/cbmc", program)
    script(folder / "lib/ld.so", '#!/bin/sh\n[ "$1" = --library-path ] && shift 2\nexec "$@"\n')
    (folder / "tool.json").write_text(json.dumps({"program": "bin/cbmc", "loader": "lib/ld.so", "libraries": "lib"}))
    return folder


@pytest.fixture(autouse=True)
def _nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable, nothing but the system's own tools on PATH, empty prefixes."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.delenv("QUANTIFY_CBMC", raising=False)
    clean = [d for d in os.environ["PATH"].split(os.pathsep) if not os.path.exists(os.path.join(d, "cbmc"))]
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), *clean]))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(locate, "checkout_root", lambda: None)


def test_nothing_found() -> None:
    assert locate.find("cbmc") is None
    with pytest.raises(MissingToolError, match="CBMC 6 or later is not installed") as caught:
        locate.require_cbmc()
    assert "python -m quantify.tools.fetch_cbmc" in caught.value.hint


def test_in_a_checkout_the_hint_is_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "Makefile").touch()
    monkeypatch.setattr(locate, "checkout_root", lambda: tmp_path / "here")
    assert locate.install_cbmc_hint() == "run `make cbmc`"
    monkeypatch.chdir(tmp_path)
    assert locate.install_cbmc_hint() == f"run `make -C {tmp_path / 'here'} cbmc`"


def test_on_path(tmp_path: Path) -> None:
    path = script(tmp_path / "bin/cbmc", GOOD)
    tool = locate.find("cbmc")
    assert tool is not None
    assert (tool.argv_prefix, tool.version, tool.path) == ((str(path),), "6.6.0", str(path))
    assert tool.sha256 == locate.sha256_of(path)


def test_a_changed_file_is_looked_at_again(tmp_path: Path) -> None:
    path = script(tmp_path / "bin/cbmc", GOOD)
    first = locate.find("cbmc")
    script(path, GOOD.replace("6.6.0", "6.10.1"))
    second = locate.find("cbmc")
    assert first is not None
    assert second is not None
    assert (first.version, second.version) == ("6.6.0", "6.10.1")
    assert first.sha256 != second.sha256


def test_the_order_of_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = unpacked(tmp_path / "data/quantify/tools")
    tool = locate.find("cbmc")
    assert tool is not None
    assert tool.path == str(data / "bin/cbmc")
    assert tool.argv_prefix[:2] == (str(data / "lib/ld.so"), "--library-path")

    here = unpacked(tmp_path / "here/.tools")
    assert (locate.find("cbmc") or tool).path == str(here / "bin/cbmc")
    on_path = script(tmp_path / "bin/cbmc", GOOD)
    assert (locate.find("cbmc") or tool).path == str(on_path)
    named = script(tmp_path / "elsewhere/my-cbmc", GOOD)
    monkeypatch.setenv("QUANTIFY_CBMC", str(named))
    assert (locate.find("cbmc") or tool).path == str(named)
    monkeypatch.setenv("QUANTIFY_CBMC", str(data))
    assert (locate.find("cbmc") or tool).path == str(data / "bin/cbmc")


@pytest.mark.parametrize(
    ("text", "said"),
    [(OLD, "version 5.12 is too old"), (SILENT, "does not say its version"), (BROKEN, "exit code 134: boom")],
)
def test_an_unusable_one_on_path_gives_way(tmp_path: Path, text: str, said: str) -> None:
    script(tmp_path / "bin/cbmc", text)
    with pytest.raises(MissingToolError, match=said):
        locate.require_cbmc()
    unpacked(tmp_path / "here/.tools")
    assert locate.require_cbmc().version == "6.6.0"


@pytest.mark.parametrize("value", ["/no/such/cbmc", "old"])
def test_a_wrong_variable_is_an_error_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    script(tmp_path / "bin/cbmc", GOOD)
    if value == "old":
        value = str(script(tmp_path / "old", OLD))
    monkeypatch.setenv("QUANTIFY_CBMC", value)
    with pytest.raises(MissingToolError, match=r"QUANTIFY_CBMC=.* cannot be used"):
        locate.find("cbmc")


def test_a_damaged_prefix_is_passed_over(tmp_path: Path) -> None:
    folder = unpacked(tmp_path / "here/.tools")
    (folder / "lib/ld.so").unlink()
    assert locate.find("cbmc") is None
    (folder / "tool.json").write_text("{")
    assert locate.find("cbmc") is None


def test_fetch_keeps_what_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = script(tmp_path / "bin/cbmc", GOOD)
    assert fetch_cbmc.main([str(tmp_path / "prefix")]) == 0
    assert f"cbmc 6.6.0 ({path})" in capsys.readouterr().out
    assert not (tmp_path / "prefix").exists()


def test_fetch_passes_over_what_does_not_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script(tmp_path / "bin/cbmc", OLD)
    folder = unpacked(tmp_path / "prefix")
    assert fetch_cbmc.main([str(tmp_path / "prefix")]) == 0
    shown = capsys.readouterr()
    assert str(folder / "bin/cbmc") in shown.out
    assert "5.12 is too old" in shown.err


def test_fetch_without_apt_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert fetch_cbmc.main([str(tmp_path / "prefix")]) == 2
    shown = capsys.readouterr().err
    assert "apt-get is missing" in shown
    assert "QUANTIFY_CBMC" in shown


def test_sources_come_from_apt(tmp_path: Path) -> None:
    script(
        tmp_path / "bin/apt-get",
        "#!/bin/sh\n[ $1 = indextargets ] || exit 3\n"
        "echo 'Vendor|Vendor|https://packages.example/vendor/'\n"
        "echo 'Debian|Debian-Security|http://archive.example/security/'\n"
        "echo 'Debian|Debian|http://archive.example/stable/'\necho 'Debian|Debian|http://archive.example/stable/'\n",
    )
    (line,) = fetch_cbmc.source_lines()
    assert line.endswith("http://archive.example/stable/ trixie main")


def test_sources_without_package_lists(tmp_path: Path) -> None:
    script(
        tmp_path / "bin/apt-get",
        "#!/bin/sh\n[ $1 = update ] || exit 0\n"
        "echo \"'http://archive.example/security/dists/trixie-security/InRelease' x 0\"\n"
        "echo \"'http://archive.example/stable/dists/trixie/InRelease' x 0\"\n"
        "echo \"'http://archive.example/stable/dists/trixie-updates/InRelease' x 0\"\n",
    )
    first, second = fetch_cbmc.source_lines()
    assert first.endswith("http://archive.example/stable/ trixie main")
    assert second.endswith("http://archive.example/security/ trixie main")


def test_an_unreachable_mirror_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script(
        tmp_path / "bin/apt-get",
        "#!/bin/sh\ncase $1 in indextargets) echo 'Debian|Debian|http://archive.example/stable/';;\n"
        "*) echo 'E: Could not connect' >&2; exit 100;; esac\n",
    )
    assert fetch_cbmc.main([str(tmp_path / "prefix")]) == 2
    assert "Could not connect" in capsys.readouterr().err
    assert list((tmp_path / "prefix").iterdir()) == []


def test_the_script_runs_without_an_installation() -> None:
    """As the Makefile calls it, by an interpreter that knows no quantify."""
    path = Path(fetch_cbmc.__file__)
    ended = subprocess.run(
        [sys.executable, "-S", str(path), "--help"], capture_output=True, text=True, check=True, cwd="/"
    )
    assert "no root needed" in ended.stdout
