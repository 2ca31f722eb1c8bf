"""A verdict to SARIF 2.1.0 (OASIS standard): a result a rule, at its line in the policy file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from quantify import __version__
from quantify.ir.verdict import Finding, Outcome, Verdict
from quantify.report.verdict import asked, name, sentences

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
KINDS: dict[Outcome, tuple[str, str]] = {
    Outcome.PASS: ("pass", "none"),
    Outcome.FAIL: ("fail", "error"),
    Outcome.INVALID: ("fail", "error"),
    Outcome.INSUFFICIENT_EVIDENCE: ("open", "none"),
    Outcome.MANUAL_REVIEW: ("review", "none"),
}
"""`kind` and `level` of a result (3.27.9 and 3.27.10: any kind but `fail` has level `none`)."""


def to_sarif(verdict: Verdict) -> dict[str, Any]:
    """The SARIF log as plain JSON data."""
    uri = _uri(verdict.policy)
    ids = list(dict.fromkeys(finding.rule for finding in verdict.findings))
    first = {finding.rule: finding for finding in reversed(verdict.findings)}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "quantify gate",
                        "semanticVersion": _semantic(__version__),
                        "version": __version__,
                        "rules": [_rule(rule, first[rule]) for rule in ids],
                    }
                },
                "invocations": [
                    {
                        "executionSuccessful": verdict.outcome is not Outcome.INVALID,
                        "exitCode": verdict.exit_code,
                        "properties": {"outcome": verdict.outcome.value},
                    }
                ],
                "artifacts": [{"location": {"uri": uri}, "hashes": {"sha-256": verdict.policy_sha256}}],
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, ids.index(finding.rule), uri) for finding in verdict.findings],
                "properties": {"outcome": verdict.outcome.value, "correction": verdict.correction},
            }
        ],
    }


def _rule(rule: str, finding: Finding) -> dict[str, Any]:
    return {
        "id": rule,
        "shortDescription": {"text": asked(finding)},
        "defaultConfiguration": {"level": "error"},
    }


def _result(finding: Finding, index: int, uri: str) -> dict[str, Any]:
    kind, level = KINDS[finding.outcome]
    text = "; ".join([f"{finding.outcome.value}: {name(finding)} asks for {asked(finding)}", *sentences(finding)])
    identity = "\n".join([finding.rule, finding.group or ""])
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "kind": kind,
        "level": level,
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uri, "index": 0},
                    "region": {"startLine": max(1, finding.line)},
                }
            }
        ],
        "partialFingerprints": {"ruleAndGroup/v1": hashlib.sha256(identity.encode()).hexdigest()},
        "properties": {
            "outcome": finding.outcome.value,
            "reasons": [reason.code for reason in finding.reasons],
            "evidence": [{"digest": source.digest, "use": source.use} for source in finding.sources],
        },
    }


def _uri(path: str) -> str:
    """A relative reference, or a file URI for an absolute path."""
    return Path(path).as_uri() if Path(path).is_absolute() else quote(Path(path).as_posix())


def _semantic(version: str) -> str:
    """The version as SemVer, which SARIF asks for."""
    parts = version.split("+")[0].split(".")
    numbers = [part for part in parts if part.isdigit()]
    rest = [part for part in parts if not part.isdigit()]
    core = ".".join([*numbers, "0", "0", "0"][:3]) if len(numbers) < 3 else ".".join(numbers[:3])
    return core + (f"-{'.'.join(rest)}" if rest else "")
