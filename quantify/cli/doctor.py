"""`quantify doctor`: what is installed, where, whether it counts correctly, and what would install the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from quantify.cli import output
from quantify.cli.options import limit_options, limits_from, output_options
from quantify.errors import ContradictionError, QuantifyError
from quantify.resources import Limits, Progress

CALIBRATION_SECONDS = 120.0


def examine(limits: Limits, progress: Progress) -> list[dict[str, Any]]:
    """One entry a tool: `{name, kind, version, path, status, detail, install, required}`.

    Status is ok, missing or wrong; only a tool that passed its calibration is ok.
    """
    return [_cbmc(limits, progress), *_counters(limits, progress), _native(), *_libraries(), *_extras()]


def _entry(name: str, kind: str, required: bool, **rest: str) -> dict[str, Any]:
    blank = {"version": "", "path": "", "status": "ok", "detail": "", "install": ""}
    return {"name": name, "kind": kind, "required": required, **blank, **rest}


def _cbmc(limits: Limits, progress: Progress) -> dict[str, Any]:
    from quantify.cnf import selfcheck
    from quantify.tools import locate

    progress.update("checking CBMC")
    install = locate.install_cbmc_hint()
    try:
        tool = locate.find("cbmc")
        if tool is None:
            return _entry("cbmc", "translator", True, status="missing", install=install)
        facts = {"version": tool.version, "path": tool.path}
        selfcheck.require_checked(limits)
    except ContradictionError as error:
        return _entry("cbmc", "translator", True, **facts, status="wrong", detail=error.message, install=install)
    except QuantifyError as error:
        return _entry("cbmc", "translator", True, status="missing", detail=error.message, install=install)
    return _entry("cbmc", "translator", True, **facts, detail="calibrated")


def _counters(limits: Limits, progress: Progress) -> list[dict[str, Any]]:
    from quantify.cnf import calibration, counters

    entries = []
    for name, counter in counters.discover().items():
        progress.update(f"calibrating {name}")
        tool = counter.locate()
        if tool is None:
            entries.append(_entry(name, "counter", counter.by_default, status="missing", install=counter.install))
            continue
        facts = {"version": tool.version, "path": tool.path}
        try:
            verdict = calibration.calibrate(counter, limits)
            status = "ok" if verdict.ok else "wrong"
            detail = (
                f"calibrated on {verdict.checked} formulas ({counter.guarantee})" if verdict.ok else verdict.failures[0]
            )
        except QuantifyError as error:
            status, detail = "wrong", error.message
        install = "" if status == "ok" else counter.install
        entries.append(
            _entry(name, "counter", counter.by_default, **facts, status=status, detail=detail, install=install)
        )
    return entries


def _native() -> dict[str, Any]:
    import importlib

    try:
        module = importlib.import_module("quantify.engines._native")
    except ImportError as error:
        return _entry(
            "native",
            "engines",
            True,
            status="missing",
            detail=str(error),
            install="pip install --force-reinstall quantify-ml",
        )
    except QuantifyError as error:
        return _entry("native", "engines", True, status="wrong", detail=error.message, install=error.hint)
    return _entry("native", "engines", True, path=str(module.__file__))


def _libraries() -> list[dict[str, Any]]:
    from importlib import metadata

    found = []
    for name in ("scikit-learn", "numpy", "scipy", "skops", "joblib", "dd", "python-sat"):
        try:
            found.append(_entry(name, "library", True, version=metadata.version(name)))
        except metadata.PackageNotFoundError:
            found.append(_entry(name, "library", True, status="missing", install=f"pip install {name}"))
    return found


EXTRAS = (
    ("onnx", "onnx", "reads .onnx"),
    ("onnxruntime", "onnx", "answers for .onnx under --cross-check"),
    ("tensorflow", "keras", "answers for .keras and .h5 under --cross-check"),
    ("ai-edge-litert", "tflite", "answers for .tflite under --cross-check; tensorflow does so too"),
)
"""Optional libraries: the extra that brings them, and what they do."""


def _extras() -> list[dict[str, Any]]:
    from importlib import metadata

    found = []
    for name, extra, use in EXTRAS:
        try:
            found.append(_entry(name, "library", False, version=metadata.version(name), detail=use))
        except metadata.PackageNotFoundError:
            install = f"pip install 'quantify-ml[{extra}]'"
            found.append(_entry(name, "library", False, status="missing", detail=use, install=install))
    return found


@click.command("doctor")
@limit_options
@output_options
def command(
    timeout: float | None, memory: int | None, seed: int, jobs: int, json_file: Path | None, quiet: bool
) -> int:
    """Show every tool: version, place, whether it passed calibration, and how to install what is missing.

    Exit code 0 when the default set is complete and correct, 2 when part of it is missing, 4 when a tool counts wrong.
    """
    limits = limits_from(timeout if timeout is not None else CALIBRATION_SECONDS, memory, seed, jobs)
    output.check_writable(json_file)
    with output.progress(quiet) as shown:
        entries = examine(limits, shown)
    if json_file is not None:
        output.write_json(json_file, {"schema": "quantify/1", "tools": entries})
    if not quiet and str(json_file) != "-":
        for entry in entries:
            click.echo(_line(entry))
    if any(entry["status"] == "wrong" for entry in entries):
        return 4
    return 2 if any(entry["status"] == "missing" and entry["required"] for entry in entries) else 0


MARKS = {"ok": "ok     ", "missing": "MISSING", "wrong": "WRONG  "}


def _line(entry: dict[str, Any]) -> str:
    mark = "absent " if entry["status"] == "missing" and not entry["required"] else MARKS[entry["status"]]
    parts = [f"{mark} {entry['name']:<14} {entry['version']:<12}", entry["detail"], entry["path"]]
    if entry["status"] != "ok" and entry["install"]:
        parts.append(f"→ {entry['install']}")
    return "  ".join(part for part in parts if part).rstrip()
