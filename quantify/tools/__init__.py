"""External programs: finding them, and running them under limits."""

from __future__ import annotations

from quantify.tools.locate import Candidate, Tool, find
from quantify.tools.process import Completed, run

__all__ = ["Candidate", "Completed", "Tool", "find", "run"]
