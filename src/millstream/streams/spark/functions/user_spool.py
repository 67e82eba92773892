"""The spool for failed calls of users' functions: workers leave them, the driver takes them at the batch's end."""

from __future__ import annotations

from pathlib import Path

import msgspec

from millstream.streams.functions.user_functions.failed_calls import FailedCall
from millstream.streams.state.spool import Spool

__all__ = ["SpooledCall", "call_spool"]


class SpooledCall(msgspec.Struct, frozen=True):
    """A failed call of a user's function."""

    stage: str
    """The stage of the query that made the call."""

    call: FailedCall
    """The function, its arguments and why it failed."""

    row: bytes = b""
    """The row that the call was made for as JSON; blank where that goes nowhere."""

    ends: bool = False
    """Whether the job ends, whatever its settings say of calls."""


def call_spool(directory: str) -> Spool[SpooledCall]:
    """The failed calls; a file for each piece of work of a micro-batch, such as a batch of a stage's task."""
    return Spool(Path(directory), ".calls", SpooledCall)
