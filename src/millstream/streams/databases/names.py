"""Names of tables and columns as SQL of a database has them."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["quoted", "table_parts"]

_WHOLE = re.compile(r'(?:"(?:[^"]|"")+"|`(?:[^`]|``)+`)(?:\.(?:"(?:[^"]|"")+"|`(?:[^`]|``)+`))*')
_PART = re.compile(r'"((?:[^"]|"")+)"|`((?:[^`]|``)+)`')


def table_parts(text: str) -> tuple[str, ...]:
    """The parts of a table's name: schema.table, or "a.b"."c" where a dot belongs to a name."""
    if _WHOLE.fullmatch(text):
        return tuple(
            found[1].replace('""', '"') if found[1] is not None else found[2].replace("``", "`")
            for found in _PART.finditer(text)
        )
    return tuple(text.split("."))


def quoted(parts: Sequence[str], quote: str, mark: str) -> str:
    """The name in quotes. Drivers that replace their marks by themselves want each % twice."""
    written = ".".join(f"{quote}{part.replace(quote, quote * 2)}{quote}" for part in parts)
    return written.replace("%", "%%") if mark == "%s" else written
