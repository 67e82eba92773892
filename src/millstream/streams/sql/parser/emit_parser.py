"""EMIT, as rsqldb and Blink write it behind an INSERT: when windows speak beside their end."""

from __future__ import annotations

import datetime

from millstream.streams.plan.windows import Emit
from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.interval_parser import parse_amount

__all__ = ["DEFAULT_LATENESS_MS", "parse_emit"]

DEFAULT_LATENESS_MS = 3_600_000
"""How long after its end a window takes late rows where EMIT speaks of them and 'table.exec.emit.allow-lateness' is
not set; Blink's hour."""


def parse_emit(cursor: Cursor) -> Emit:
    """EMIT WITH DELAY '5' SECOND | WITHOUT DELAY [BEFORE | AFTER WATERMARK] [, ...]; without a side, both are meant."""
    cursor.need("EMIT")
    sides: dict[str, int] = {}
    while True:
        strategy = cursor.here()
        delay_ms = _delay(cursor)
        side = next((word for word in ("BEFORE", "AFTER") if cursor.take(word)), None)
        if side is not None:
            cursor.need("WATERMARK")
        for name in ("BEFORE", "AFTER") if side is None else (side,):
            if name in sides:
                message = f"EMIT says twice what comes {name} WATERMARK."
                raise cursor.script.error("SQL_SYNTAX", message, cursor.since(strategy))
            sides[name] = delay_ms
        if not cursor.take_symbol(","):
            break
    late_ms = sides.get("AFTER")
    return Emit(sides.get("BEFORE"), late_ms, 0 if late_ms is None else DEFAULT_LATENESS_MS)


def _delay(cursor: Cursor) -> int:
    if cursor.take("WITHOUT", "DELAY"):
        return 0
    if not cursor.take("WITH", "DELAY"):
        raise cursor.expected_error("WITH DELAY or WITHOUT DELAY")
    interval = parse_amount(cursor)
    if interval.duration is None or interval.duration <= datetime.timedelta():
        message = "A delay is a time of 1 millisecond or more, without months."
        raise cursor.script.error("SQL_TYPE", message, interval.span)
    return max(1, round(interval.duration.total_seconds() * 1000))
