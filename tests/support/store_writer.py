"""A process that records one piece of evidence after the other and says each digest once it is stored."""

from __future__ import annotations

import sys
from pathlib import Path

from quantify.evidence.store import Store
from quantify.ir.record import Record


def main(path: str, writer: str, many: str) -> None:
    for number in range(int(many)):
        with Store(Path(path), create=True) as store:
            name = store.add(
                Record(
                    "transfer",
                    "2026-01-02T03:04:05+00:00",
                    {"version": "1"},
                    body={"writer": writer, "number": number, "ballast": "x" * 20_000},
                )
            )
        sys.stdout.write(name + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
