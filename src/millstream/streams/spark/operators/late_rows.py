"""Rows that came behind the watermark: workers leave them in a spool, the driver counts them at the batch's end."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream.streams.operators.changes import Row
from millstream.streams.state.atomic_file import write_file

__all__ = ["LateRows", "LateSpool"]

_SUFFIX = ".late"


@dataclass(frozen=True, slots=True)
class LateRows:
    """The late rows of one operator, each with the number of the input that it came from."""

    operator: str
    rows: Sequence[tuple[int, Row]]


class LateSpool:
    """The directory; a repeated micro-batch writes the same files again."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def keep(self, operator: str, bucket: int, batch_id: int, rows: Sequence[tuple[int, Row]]) -> None:
        """Leave the late rows of one bucket's turn."""
        content = pickle.dumps(LateRows(operator, list(rows)), pickle.HIGHEST_PROTOCOL)
        write_file(self._directory / f"{operator}-{bucket}-{batch_id}{_SUFFIX}", content, durable=False)

    def take(self) -> list[LateRows]:
        """What was left, in a fixed order; it is removed."""
        found = []
        for file in sorted(self._directory.glob(f"[!.]*{_SUFFIX}")):
            found.append(pickle.loads(file.read_bytes()))
            file.unlink()
        return found
