"""Evidence to one self-contained HTML page: no scripts, no external requests, everything escaped."""

from __future__ import annotations

import json
from typing import Any

from quantify import __version__
from quantify.ir.evidence import Evidence
from quantify.report import view
from quantify.report.json import to_dict
from quantify.resources import templates_dir


def render(evidence: Evidence) -> str:
    """The page of `quantify count`, with the JSON answer folded in at the end."""
    report = view.of_evidence(evidence)
    return fill("report.html.j2", report.title, to_dict(evidence), report=report)


def fill(template: str, title: str, answer: dict[str, Any], **more: Any) -> str:
    """A page from its template.

    Args:
        answer: What `--json` prints, for the end of the page.
        more: What else the template shows.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(templates_dir("html")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(
        title=title,
        record=json.dumps(answer, indent=2, ensure_ascii=False, allow_nan=False),
        version=__version__,
        **more,
    )
