"""Flink's side: one PyFlink process that takes cases as JSON lines."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from differential.cases import Case, Source

__all__ = ["Answer", "Flink"]

Change = tuple[str, tuple[str | None, ...]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine says of a case: its changes (`+` or `-` and the row as texts) in order, or why there are none.

    `appends`: its plan promises that no row changes. `batches` are how many changes there were at the end of each
    micro-batch, where the engine has them; `plan` is Flink's physical one. `refused` comes before anything runs,
    `failed` while it runs.
    """

    changes: tuple[Change, ...] = ()
    appends: bool = False
    refused: str = ""
    failed: str = ""
    batches: tuple[int, ...] = ()
    plan: str = ""

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Answer:
        """The answer of a line, or of a kept case."""
        changes = tuple((sign, tuple(row)) for sign, row in told.get("changes", ()))
        refused, failed = told.get("refused", ""), told.get("failed", "")
        return cls(changes, told.get("appends", False), refused, failed, plan=told.get("plan", ""))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        if self.refused or self.failed:
            return {"refused": self.refused} if self.refused else {"failed": self.failed}
        changes = [[sign, list(row)] for sign, row in self.changes]
        return {"changes": changes, "appends": self.appends, "plan": self.plan}


_PROGRAM: Final = Path(__file__).with_name("flink_process.py")

_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx2g"
"""Jobs of a few rows never pay for what the second compiler does."""


class Flink:
    """The process; `python` is an interpreter that has PyFlink. Raises OSError where it does not start."""

    def __init__(self, python: Path, log: Path) -> None:
        self._log = log.open("w")
        self._process = subprocess.Popen(
            [str(python), "-P", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "JAVA_TOOL_OPTIONS": _JAVA},
        )
        self._read()

    def __enter__(self) -> Flink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def answers(self, cases: Sequence[Case]) -> list[Answer]:
        """What Flink says of each; all of them are one job."""
        assert self._process.stdin is not None
        line = json.dumps({"cases": [_order(case) for case in cases]})
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return [Answer.from_json(told) for told in self._read()["answers"]]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._log.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise OSError(f"The PyFlink process has ended; its words are in {self._log.name}.")
        told = json.loads(line)
        assert isinstance(told, dict)
        return told


def _order(case: Case) -> dict[str, Any]:
    read = case.query.tables()
    tables = [_table(source, case) for source in case.sources if source.name in read]
    return {"tables": tables, "views": case.views(), "columns": list(case.query.columns)}


def _table(source: Source, case: Case) -> dict[str, str]:
    names = [name for name, _ in source.columns]
    lines = []
    for arrival in case.arrivals:
        if arrival.table != source.name:
            continue
        before, after = (
            None if row is None else dict(zip(names, row, strict=True)) for row in (arrival.before, arrival.after)
        )
        operation = "c" if before is None else "d" if after is None else "u"
        lines.append(json.dumps(after if source.key is None else {"before": before, "after": after, "op": operation}))
    return {
        "name": source.name,
        "ddl": source.declaration("%OPTIONS%"),
        "format": "json" if source.key is None else "debezium-json",
        "text": "".join(f"{line}\n" for line in lines),
    }
