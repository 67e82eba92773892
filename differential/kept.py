"""Cases with Flink's answers as JSON, for comparisons that need no Flink."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from differential.cases import Case
from differential.flink import Answer

__all__ = ["KEPT", "append", "keep", "read", "read_kept"]

KEPT: Final = Path(__file__).parent.parent / "tests" / "differential" / "kept"
"""One file for each case that once differed."""


def append(file: Path, case: Case, flink: Answer) -> None:
    """A line more of the answers of a run."""
    with file.open("a") as lines:
        lines.write(json.dumps({"case": case.to_json(), "flink": flink.to_json()}) + "\n")


def read(file: Path) -> Iterator[tuple[Case, Answer]]:
    """The lines of a run."""
    for line in file.read_text().splitlines() if file.exists() else []:
        told = json.loads(line)
        yield Case.from_json(told["case"]), Answer.from_json(told["flink"])


def keep(name: str, case: Case, flink: Answer, reason: str | None) -> Path:
    """A file for a case that differs or did; `reason` where it is meant to."""
    file = KEPT / f"{name}.json"
    text = json.dumps({"case": case.to_json(), "flink": flink.to_json(), "reason": reason})
    file.write_text(f"{text}\n")
    return file


def read_kept(file: Path) -> tuple[Case, Answer, str | None]:
    """What `keep` left."""
    told = json.loads(file.read_text())
    return Case.from_json(told["case"]), Answer.from_json(told["flink"]), told["reason"]
