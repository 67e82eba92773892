"""Rate-limited log lines about unknown clients: at most one a second of each kind over all ports."""

from __future__ import annotations

import logging
from enum import Enum
from typing import Final

from millstream.model.clock import Clock
from millstream.model.line_budget import LineBudget

__all__ = ["LINES_PER_SECOND", "MAX_WORDS_CHARACTERS", "StrangerAct", "StrangerLog"]

LINES_PER_SECOND: Final = 1.0
"""Lines per second of each kind at most; what is left out is counted in the next line."""

MAX_WORDS_CHARACTERS: Final = 500
"""Characters of one such line at most."""


class StrangerAct(Enum):
    """What somebody who is not known yet can do often."""

    BAD_FRAME = "bad frame"
    REFUSED = "refused connection"
    NOT_ENTERED = "connection that did not come to be"
    NOT_ACCEPTED = "connection that could not be accepted"
    BAD_REQUEST = "bad request"


class StrangerLog:
    """One for all ports of a process."""

    def __init__(self, clock: Clock) -> None:
        self._budgets = {act: LineBudget(clock, per_second=LINES_PER_SECOND) for act in StrangerAct}

    def say(self, logger: logging.Logger, act: StrangerAct, words: str, *, level: int = logging.WARNING) -> None:
        """Write the line, or count it as left out."""
        if not logger.isEnabledFor(level):
            return
        left_out = self._budgets[act].admit()
        if left_out is not None:
            more = f" ({left_out:,} more of the kind: {act.value})" if left_out else ""
            logger.log(level, "%s%s", words[:MAX_WORDS_CHARACTERS], more)
