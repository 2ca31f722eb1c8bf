"""A prefix goes in; a CBMC that runs there, unpacked from Debian's packages without touching the system, comes out.

Needs apt-get and dpkg-deb, no root, and nothing but the standard library: `python3 quantify/tools/fetch_cbmc.py PREFIX`
works in a bare checkout, `python -m quantify.tools.fetch_cbmc` once quantify is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# A script has its own folder on the path, not the checkout's.
if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from quantify.errors import MissingToolError, QuantifyError
from quantify.tools import locate

SUITE = "trixie"
"""Debian 13: the first with CBMC 6. Pinned, because the C library of later suites may want a newer kernel."""
PACKAGES = ("cbmc", "libc6", "libgcc-s1", "libstdc++6", "minisat")
KEYRINGS = tuple(Path(f"/usr/share/keyrings/debian-archive-keyring.{suffix}") for suffix in ("gpg", "pgp"))
PROBE = """\
typedef unsigned __CPROVER_bitvector[4] u4;
u4 nondet_u4(void);
int main(void) {
  u4 x = nondet_u4();
  __CPROVER_assert(!(x < 5), "below five");
  return 0;
}
"""
APT_CONF = """\
Dir::State "{root}/state";
Dir::State::status "{root}/status";
Dir::Cache "{root}/cache";
Dir::Etc::SourceList "{root}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
APT::Sandbox::User "root";
APT::Get::List-Cleanup "false";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
#clear Acquire::IndexTargets::deb::Contents-deb;
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::DEP-11-icons;
#clear Acquire::IndexTargets::deb::DEP-11-icons-small;
#clear Acquire::IndexTargets::deb::DEP-11-icons-hidpi;
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
"""


def main(arguments: list[str] | None = None) -> int:
    """Make sure that CBMC can be found; exit code 0 when it can, 2 with the reason when not."""
    parser = argparse.ArgumentParser(
        prog="fetch_cbmc", description="Find CBMC 6 or later, or unpack it into PREFIX/cbmc (no root needed)."
    )
    parser.add_argument("prefix", nargs="?", type=Path, help="default: .tools of the checkout, or your data folder")
    parser.add_argument("--force", action="store_true", help="unpack even when CBMC is found")
    options = parser.parse_args(arguments)
    checkout = locate.checkout_root()
    prefix = options.prefix or (locate.data_prefix() if checkout is None else checkout / ".tools")
    try:
        tool = None if options.force else existing(prefix)
        if tool is None:
            tool = install(prefix)
    except QuantifyError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: cannot unpack CBMC into {prefix}: {error}", file=sys.stderr)
        return 2
    print(f"cbmc {tool.version} ({tool.path})")
    return 0


def existing(prefix: Path) -> locate.Tool | None:
    """A CBMC that quantify will find and that translates; complains of those it passes over."""
    candidates = list(locate.cbmc_candidates())
    folder = prefix.resolve() / locate.CBMC_FOLDER
    if (folder / locate.MANIFEST).is_file() and all(c.place != str(folder) for c in candidates):
        candidates.append(locate.judge(str(folder), folder))
    for candidate in candidates:
        verdict = candidate.verdict
        if candidate.tool is not None:
            try:
                check(candidate.tool)
            except MissingToolError as error:
                verdict = error.message
            else:
                return candidate.tool
        print(f"passing over {candidate.place}: {verdict}", file=sys.stderr)
    return None


def install(prefix: Path) -> locate.Tool:
    """Download, unpack, try, and only then move to PREFIX/cbmc.

    Raises:
        MissingToolError: Not a Debian-like system, no source can be reached, or what was unpacked does not run.
    """
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise MissingToolError(
                f"{program} is missing: CBMC is unpacked from Debian packages",
                f"install CBMC 6 or later yourself and put it on PATH, or name it in {locate.CBMC_VARIABLE}",
            )
    prefix.mkdir(parents=True, exist_ok=True)
    prefix = prefix.resolve()
    with tempfile.TemporaryDirectory(prefix=".cbmc-", dir=prefix) as scratch:
        root = Path(scratch)
        debs = download(root)
        tree = root / "tree"
        for deb in debs:
            _call(["dpkg-deb", "-x", str(deb), str(tree)])
        slim = cut_down(tree, root / "slim", debs)
        check(locate.cbmc_in(slim))
        final = prefix / locate.CBMC_FOLDER
        if final.exists():
            final.rename(root / "replaced")
        slim.rename(final)
    return locate.cbmc_in(final)


def download(root: Path) -> list[Path]:
    """The packages as .deb files, fetched with apt state of their own below `root`.

    Raises:
        MissingToolError: None of the machine's package sources serves the suite.
    """
    for folder in ("state/lists/partial", "cache/archives/partial", "debs"):
        (root / folder).mkdir(parents=True)
    (root / "status").touch()
    conf = root / "apt.conf"
    conf.write_text(APT_CONF.format(root=root))
    failures: list[str] = []
    for line in source_lines():
        (root / "sources.list").write_text(f"{line}\n")
        print(f"fetching CBMC from {SUITE} (about 26 MB)", file=sys.stderr)
        try:
            _call(["apt-get", "-q", "-c", str(conf), "update"])
            _call(["apt-get", "-q", "-c", str(conf), "download", *PACKAGES], cwd=root / "debs")
        except MissingToolError as error:
            failures.append(error.message)
            continue
        return sorted((root / "debs").glob("*.deb"))
    raise MissingToolError(
        "CBMC cannot be downloaded: " + ("; ".join(failures) or "apt has no package sources"),
        f"check the network and apt's sources, or install CBMC 6 and name it in {locate.CBMC_VARIABLE}",
    )


def source_lines() -> list[str]:
    """One-line sources for the suite, made of the addresses this machine's apt already uses, the likeliest first.

    Whose a source is can be asked once `apt-get update` has run. On images without package lists, what apt would
    fetch names its addresses, and every one is worth a try: a suite that Debian has not signed is refused.
    """
    template = "$(ORIGIN)|$(LABEL)|$(REPO_URI)"
    listed = _call(["apt-get", "indextargets", "--format", template, "Created-By: Packages"], capture=True)
    fields = [line.split("|") for line in listed.splitlines()]
    addresses = [field[2] for field in fields if len(field) == 3 and field[:2] == ["Debian", "Debian"]]
    if not addresses:
        planned = _call(["apt-get", "update", "--print-uris"], capture=True)
        addresses = re.findall(r"^'([a-z+]+:\S+?/)dists/", planned, re.MULTILINE)
    addresses.sort(key=lambda address: "security" in address)
    keyring = next((path for path in KEYRINGS if path.is_file()), None)
    signed = "" if keyring is None else f"[signed-by={keyring}] "
    return [f"deb {signed}{address} {SUITE} main" for address in dict.fromkeys(addresses)]


def cut_down(tree: Path, slim: Path, debs: list[Path]) -> Path:
    """The program, its loader, its libraries and their licences, of all that was unpacked.

    Raises:
        MissingToolError: The loader does not find every library inside `tree`.
    """
    program = tree / "usr/bin/cbmc"
    loader = next((path for path in sorted(tree.glob("usr/lib*/ld-linux*.so.*"))), None)
    if loader is None or not program.is_file():
        raise MissingToolError("the packages are laid out in an unknown way", "please report this")
    folders = [folder for folder in (*tree.glob("usr/lib/*-linux-gnu*"), tree / "usr/lib") if folder.is_dir()]
    listed = _call([str(loader), "--library-path", ":".join(map(str, folders)), "--list", str(program)], capture=True)
    (slim / "bin").mkdir(parents=True)
    (slim / "lib").mkdir()
    shutil.copy2(program, slim / "bin/cbmc")
    shutil.copy2(loader.resolve(), slim / "lib" / loader.name)
    for name, found in re.findall(r"^\s*(\S+) => (.+?)(?: \(0x[0-9a-f]+\))?$", listed, re.MULTILINE):
        library = Path(found)
        if not library.is_relative_to(tree) or not library.is_file():
            raise MissingToolError(f"{name} of the unpacked CBMC is {found}", "please report this")
        if library.resolve() != loader.resolve():
            shutil.copy2(library.resolve(), slim / "lib" / name)
    for package in PACKAGES:
        licence = tree / "usr/share/doc" / package / "copyright"
        if licence.is_file():
            (slim / "licences").mkdir(exist_ok=True)
            shutil.copy2(licence.resolve(), slim / "licences" / package)
    manifest = {
        "program": "bin/cbmc", "loader": f"lib/{loader.name}", "libraries": "lib",
        "packages": [deb.name for deb in debs],
    }  # fmt: skip
    (slim / locate.MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return slim


def check(tool: locate.Tool) -> None:
    """Translate a small query.

    Raises:
        MissingToolError: No formula came out.
    """
    with tempfile.TemporaryDirectory() as scratch:
        source, formula = Path(scratch, "probe.i"), Path(scratch, "probe.cnf")
        source.write_text(PROBE)
        options = ["--no-standard-checks", "--slice-formula", "--dimacs", "--outfile", str(formula), str(source)]
        _call([*tool.argv_prefix, *options], capture=True)
        text = formula.read_text() if formula.is_file() else ""
        if not re.search(r"^p cnf [1-9]\d* \d+$", text, re.MULTILINE) or "::x!0" not in text:
            raise MissingToolError(f"{tool.path} writes no formula", "run `make cbmc`, or name another CBMC")


def _call(argv: list[str], cwd: Path | None = None, capture: bool = False) -> str:
    """Run a helper to its end; its output is returned, or shown on stderr.

    Raises:
        MissingToolError: It failed; the message ends with its last complaint.
    """
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    environment["LC_ALL"] = "C.UTF-8"
    try:
        ended = subprocess.run(
            argv, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=900
        )
    except subprocess.TimeoutExpired as error:
        raise MissingToolError(f"{Path(argv[0]).name} took more than 15 minutes", "check the network") from error
    if not capture:
        sys.stderr.write(ended.stdout.decode(errors="replace"))
    if ended.returncode != 0:
        said = [line for line in ended.stderr.decode(errors="replace").splitlines() if line.strip()]
        complaint = next((line for line in said if line.startswith("E:")), said[-1] if said else "no message")
        raise MissingToolError(f"{Path(argv[0]).name} failed ({complaint})", "see above")
    return ended.stdout.decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
