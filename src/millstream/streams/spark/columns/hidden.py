"""The hidden columns that travel beside a relation's own: what a row says, and how event time moves."""

from __future__ import annotations

from typing import Final

__all__ = ["KIND_COLUMN", "QUEUE_COLUMN", "TICK_COLUMN", "WANTED_COLUMN"]

TICK_COLUMN: Final = "__tick"
"""NULL in every row of data. A row that has it is none: it moves event time there."""

QUEUE_COLUMN: Final = "__queue"
"""The queue that a source's row comes from, as `broker/queue id`; only where operators of ours need it."""

KIND_COLUMN: Final = "__kind"
"""What a row says, as the number of its `RowKind`; only in relations whose rows change."""

WANTED_COLUMN: Final = "__wanted"
"""The numbers of the branches that want a row, where the source judges their conditions; it is empty for none."""
