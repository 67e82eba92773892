"""Expressions with the values that Flink documents, one a line: `expression => value`, perhaps ` : TYPE` behind."""

from __future__ import annotations

import datetime
import decimal
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["GOLDENS", "Golden", "differences_from_flink", "goldens_of", "shown"]

GOLDENS = Path(__file__).parent / "streams" / "functions" / "goldens"


@dataclass(frozen=True, slots=True)
class Golden:
    """One row; `type` is blank where it does not matter."""

    expression: str
    value: str
    type: str
    place: str


def goldens_of(file: Path) -> list[Golden]:
    """The rows of a file; lines that are blank or begin with # are none."""
    rows = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if line and not line.startswith("#"):
            expression, _, rest = line.rpartition(" => ")
            value, _, data_type = rest.partition(" : ")
            rows.append(Golden(expression, value, data_type, f"{file.name}:{number}"))
    return rows


def differences_from_flink() -> list[Golden]:
    """The values of the page about differences from Flink."""
    page = Path(__file__).parents[1] / "docs" / "differences-from-flink.md"
    table = page.read_text(encoding="utf-8").split("## Values\n")[1].split("\n## ")[0]
    rows = []
    for expression, here in re.findall(r"^\| `(.+?)` \| `(.+?)` \|", table, re.MULTILINE):
        value, _, data_type = here.partition(" : ")
        rows.append(Golden(expression, value, data_type, page.name))
    return rows


def shown(value: object) -> str:
    """A value as the goldens and the reference write it."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case str():
            return "'" + value.replace("'", "''").replace("\n", "\\n").replace("\t", "\\t") + "'"
        case bytes() | bytearray():
            return f"x'{value.hex().upper()}'"
        case decimal.Decimal():
            return f"{value:f}"
        case datetime.datetime():
            return value.isoformat(" ", "microseconds" if value.microsecond % 1000 else "milliseconds")
        case datetime.date():
            return value.isoformat()
        case tuple():
            return f"({', '.join(map(shown, value))})"
        case list():
            return f"[{', '.join(map(shown, value))}]"
        case dict():
            # A map has no order, and comes from Spark in any.
            return "{" + ", ".join(sorted(f"{shown(key)}: {shown(part)}" for key, part in value.items())) + "}"
        case _:
            return str(value)
