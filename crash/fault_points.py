"""Places inside the broker at which a process can be killed, by name.

A point is the moment before or after a call of the product. Nothing stands in the product's code: a process that wants
to be killed replaces the call in itself, so that a server pays nothing.
"""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, NamedTuple

from millstream.broker.delivery.pending_transactions import PendingTransactions, SavedTransactions
from millstream.broker.delivery.timers import Timers
from millstream.broker.delivery.transactions import Transactions
from millstream.broker.pop.dead_letters import DeadLetterQueues
from millstream.broker.pop.pop_scan import PopScan
from millstream.broker.pop.popper import Popper
from millstream.broker.queues.ledger import Ledger
from millstream.broker.queues.offsets import OffsetTable
from millstream.broker.state.broker_state import BrokerState
from millstream.broker.state.state_log import StateLog
from millstream.store.files import FileLayer
from millstream.store.timer.timer_store import TimerStore

__all__ = ["POINTS", "FaultPoint", "arm"]


class FaultPoint(NamedTuple):
    """The moment before or after a call of `method`; `in_half` writes the first half of what it was to write.

    A short life comes to it some `most_calls` times.
    """

    owner: type | ModuleType
    method: str
    is_after: bool = False
    in_half: bool = False
    most_calls: int = 40


POINTS = {
    "pop-taken": FaultPoint(Ledger, "deliver", is_after=True),
    "pop-again": FaultPoint(Ledger, "redeliver", is_after=True),
    "pop-looked": FaultPoint(PopScan, "take", is_after=True),
    "pop-last-attempt": FaultPoint(DeadLetterQueues, "bury", most_calls=4),
    "pop-buried": FaultPoint(DeadLetterQueues, "bury", is_after=True, most_calls=4),
    "ack-asked": FaultPoint(Popper, "ack"),
    "ack-noted": FaultPoint(Ledger, "acknowledge", is_after=True),
    "ack-given-back": FaultPoint(Ledger, "change_invisible", is_after=True),
    "offsets-taken": FaultPoint(OffsetTable, "_take_changes", is_after=True, most_calls=4),
    "offsets-written": FaultPoint(StateLog, "append", is_after=True, most_calls=4),
    "state-saving": FaultPoint(BrokerState, "_save_mark", most_calls=1),
    "state-saved": FaultPoint(BrokerState, "_save_mark", is_after=True, most_calls=1),
    "delay-scheduled": FaultPoint(TimerStore, "schedule", is_after=True),
    "delay-due": FaultPoint(Timers, "_deliver"),
    "delay-delivered": FaultPoint(TimerStore, "finish"),
    "delay-done": FaultPoint(Timers, "_count"),
    "delay-recalled": FaultPoint(Timers, "cancel", is_after=True, most_calls=10),
    "delay-checkpoint": FaultPoint(TimerStore, "checkpoint", most_calls=4),
    "delay-checkpoint-written": FaultPoint(TimerStore, "checkpoint", is_after=True, most_calls=4),
    "transaction-prepared": FaultPoint(Transactions, "note"),
    "transaction-taken-in": FaultPoint(PendingTransactions, "add", is_after=True),
    "transaction-ending": FaultPoint(Transactions, "_begin"),
    "transaction-stored": FaultPoint(Transactions, "_note_settled"),
    "transaction-ended": FaultPoint(PendingTransactions, "remove", is_after=True),
    "transaction-save": FaultPoint(SavedTransactions, "save", most_calls=4),
    "transaction-saved": FaultPoint(SavedTransactions, "save", is_after=True, most_calls=4),
    "half-a-write": FaultPoint(FileLayer, "pwrite", in_half=True),
}
"""Where S5 kills; `cold_points` has those of S22."""


def arm(point: FaultPoint, at_call: int) -> None:
    """Kill this process at the point, when it has come to it `at_call` times (1: the first time)."""
    original = getattr(point.owner, point.method)
    left = at_call

    def reach() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(point.owner, point.method, _armed(original, point, reach))


def _armed(original: Callable[..., Any], point: FaultPoint, reach: Callable[[], None]) -> Callable[..., Any]:
    @wraps(original)
    async def waiting(*words: Any, **named: Any) -> Any:
        if not point.is_after:
            reach()
        found = await original(*words, **named)
        if point.is_after:
            reach()
        return found

    @wraps(original)
    def at_once(*words: Any, **named: Any) -> Any:
        if not point.is_after:
            reach()
        found = original(*words, **named)
        if point.is_after:
            reach()
        return found

    @wraps(original)
    def half(files: FileLayer, descriptor: int, data: bytes, position: int) -> None:
        middle = len(data) // 2
        original(files, descriptor, data[:middle], position)
        reach()
        original(files, descriptor, data[middle:], position + middle)

    if point.in_half:
        return half
    return waiting if inspect.iscoroutinefunction(original) else at_once
