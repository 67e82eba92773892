"""The audit: one line of JSON for each refused request and each change of access, in the log `millstream.audit`.

Lines for refusals are bounded: `BURST_LINES` at once and one more a second after that, each of `MAX_LINE_CHARACTERS`
at most, which is 69 MB a day. What was left out is counted, and the next line says how much it was. Changes are made by
super users only and are always written.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final

from millstream.model.clock import Clock
from millstream.model.line_budget import LineBudget

__all__ = ["BURST_LINES", "MAX_LINE_CHARACTERS", "AuditLog"]

_log = logging.getLogger("millstream.audit")

BURST_LINES: Final = 100
"""Refusals that are written one after the other at most; after them one a second."""

MAX_LINE_CHARACTERS: Final = 800
"""Characters of one line at most."""

_MAX_VALUE_CHARACTERS = 160


class AuditLog:
    """Writes the lines. Values come from strangers: they are cut, and JSON escapes what is not printable."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines = LineBudget(clock, burst_lines=BURST_LINES)
        self.refusals = 0
        """Refusals so far, written or not."""

    def note_refusal(self, *, peer: str, user: str, action: str, resource: str, reason: str) -> None:
        """A request was refused."""
        self.refusals += 1
        left_out = self._lines.admit()
        if left_out is None:
            return
        values = {"peer": peer, "user": user, "action": action, "resource": resource, "reason": reason}
        if left_out:
            values["left_out"] = str(left_out)
        _log.warning("%s", self._line("refused", values))

    def note_change(self, *, peer: str, user: str, action: str, subject: str) -> None:
        """A super user changed users or policies."""
        values = {"peer": peer, "user": user, "action": action, "subject": subject}
        _log.warning("%s", self._line("changed", values))

    def _line(self, event: str, values: dict[str, str]) -> str:
        time = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        room = _MAX_VALUE_CHARACTERS
        while True:
            cut = {name: value[:room] for name, value in values.items()}
            line = json.dumps({"time": time, "event": event, **cut})
            if len(line) <= MAX_LINE_CHARACTERS:
                return line
            # An escaped character takes six.
            room //= 2
