"""What the standards ask of the files that CI reads, written down from their text, for the parts that we use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema

TEXT = {"type": "string", "minLength": 1}
MESSAGE = {"type": "object", "properties": {"text": TEXT}, "required": ["text"], "additionalProperties": False}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


SARIF = _object(
    ["version", "runs", "$schema"],
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"const": "2.1.0"},  # 3.13.2
    runs={
        "type": "array",
        "items": _object(
            ["tool", "results"],
            tool=_object(
                ["driver"],
                driver=_object(  # 3.19
                    ["name"],
                    name=TEXT,
                    version=TEXT,
                    semanticVersion={"type": "string", "pattern": r"^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$"},
                    rules={
                        "type": "array",
                        "uniqueItems": True,
                        "items": _object(  # 3.49
                            ["id"],
                            id=TEXT,
                            shortDescription=MESSAGE,
                            defaultConfiguration=_object([], level={"enum": ["none", "note", "warning", "error"]}),
                        ),
                    },
                ),
            ),
            invocations={  # 3.20
                "type": "array",
                "items": _object(
                    ["executionSuccessful"],
                    executionSuccessful={"type": "boolean"},
                    exitCode={"type": "integer"},
                    properties={"type": "object"},
                ),
            },
            artifacts={  # 3.24
                "type": "array",
                "uniqueItems": True,
                "items": _object(
                    [],
                    location=_object([], uri={"type": "string"}),
                    hashes={"type": "object", "additionalProperties": TEXT},
                ),
            },
            columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
            properties={"type": "object"},
            results={  # 3.27
                "type": "array",
                "items": _object(
                    ["message"],
                    ruleId=TEXT,
                    ruleIndex={"type": "integer", "minimum": 0},
                    kind={"enum": ["pass", "open", "informational", "notApplicable", "review", "fail"]},
                    level={"enum": ["none", "note", "warning", "error"]},
                    message=MESSAGE,
                    partialFingerprints={"type": "object", "additionalProperties": {"type": "string"}},
                    properties={"type": "object"},
                    locations={
                        "type": "array",
                        "items": _object(
                            [],
                            physicalLocation=_object(
                                ["artifactLocation"],
                                artifactLocation=_object([], uri={"type": "string"}, index={"type": "integer"}),
                                region=_object([], startLine={"type": "integer", "minimum": 1}),
                            ),
                        ),
                    },
                ),
            },
        ),
    },
)

JUNIT: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), set(), {"testsuite"}),
    "testsuite": (
        {"name", "timestamp", "hostname", "tests", "failures", "errors", "time", "id", "package"},
        set(),
        {"properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": ({"name", "classname", "time"}, set(), {"failure", "error", "skipped"}),
    "failure": ({"type"}, {"message"}, set()),
    "error": ({"type"}, {"message"}, set()),
    "system-out": (set(), set(), set()),
    "system-err": (set(), set(), set()),
}
"""Element → attributes it must have, may have besides, and its children, after the XSD of the Ant task's reports."""


def read_sarif(path: Path) -> dict[str, Any]:
    """The one run of a SARIF file, after checking it."""
    log: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(log, SARIF)
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(rules) == len(set(rules))
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] == "none" or result["kind"] == "fail"  # 3.27.10
        for location in result["locations"]:
            artifact = location["physicalLocation"]["artifactLocation"]
            assert run["artifacts"][artifact["index"]]["location"]["uri"] == artifact["uri"]
    found: dict[str, Any] = run
    return found


def read_junit(path: Path) -> ElementTree.Element:
    """The one suite of a JUnit file, after checking it."""
    root = ElementTree.parse(path).getroot()
    assert root.tag == "testsuites"
    for element in root.iter():
        must, may, children = JUNIT[element.tag]
        assert must <= set(element.attrib) <= must | may, element.tag
        assert {child.tag for child in element} <= children, element.tag
    (suite,) = root
    order = [child.tag for child in suite]
    assert order == ["properties", *["testcase"] * int(suite.attrib["tests"]), "system-out", "system-err"]
    for tag, name in (("failure", "failures"), ("error", "errors")):
        assert len(suite.findall(f"testcase/{tag}")) == int(suite.attrib[name])
    assert all(len(case) <= 1 for case in suite.iter("testcase"))
    return suite
