"""A verdict to JUnit XML: a test case a rule; FAIL is a failure, what is undecided or invalid an error of that type.

The attributes are those that the strictest of the common schemas (the Ant task's, as written down by windyroad) asks
for; every reader of JUnit files takes them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from quantify import __version__
from quantify.ir.verdict import Finding, Outcome, Verdict
from quantify.report.verdict import asked, name, sentences


def render(verdict: Verdict, moment: datetime | None = None) -> str:
    """The XML document.

    Args:
        moment: When the gate ran; now, unless given.
    """
    failures = sum(finding.outcome is Outcome.FAIL for finding in verdict.findings)
    errors = sum(finding.outcome not in (Outcome.PASS, Outcome.FAIL) for finding in verdict.findings)
    totals = {"tests": str(len(verdict.findings)), "failures": str(failures), "errors": str(errors), "time": "0"}
    root = Element("testsuites")
    about = {
        "id": "0",
        "package": "quantify",
        "name": _text(verdict.policy),
        "hostname": "localhost",
        "timestamp": (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%S"),
    }
    suite = SubElement(root, "testsuite", {**about, **totals})
    properties = SubElement(suite, "properties")
    for key, value in (
        ("outcome", verdict.outcome.value),
        ("exit_code", str(verdict.exit_code)),
        ("policy_sha256", verdict.policy_sha256),
        ("store", verdict.store),
        ("correction", verdict.correction),
        ("quantify", __version__),
    ):
        SubElement(properties, "property", name=key, value=_text(value))
    for finding in verdict.findings:
        _case(suite, verdict, finding)
    passed = (finding for finding in verdict.findings if finding.outcome is Outcome.PASS)
    said = "\n\n".join(f"{name(finding)}: PASS\n{_said(finding)}" for finding in passed)
    SubElement(suite, "system-out").text = _text(said)
    SubElement(suite, "system-err")
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _case(suite: Element, verdict: Verdict, finding: Finding) -> None:
    case = SubElement(suite, "testcase", name=_text(name(finding)), classname=_text(verdict.policy), time="0")
    if finding.outcome is Outcome.PASS:
        return
    tag = "failure" if finding.outcome is Outcome.FAIL else "error"
    message = "; ".join(f"{reason.code}: {reason.text}" for reason in finding.reasons)
    SubElement(case, tag, type=finding.outcome.value, message=_text(message)).text = _text(_said(finding))


def _said(finding: Finding) -> str:
    """Everything there is to say, the digests in full."""
    digests = (f"{source.use}: {source.digest}" for source in finding.sources)
    return "\n".join([f"asks for {asked(finding)}", *sentences(finding), *digests])


def _text(value: str) -> str:
    """The text without what XML 1.0 does not allow."""
    return "".join(
        c if c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c >= "\U00010000" else "\ufffd"
        for c in value
    )
