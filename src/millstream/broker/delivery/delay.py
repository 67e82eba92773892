"""Computes when a delayed message is due, and wraps it as a record of the timer topic.

A sender names the time by TIMER_DELIVER_MS (absolute), TIMER_DELAY_MS, TIMER_DELAY_SEC or the level DELAY (1 to 18).
Source of names, levels and limits: RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millstream.broker.delivery.staged_messages import stage, unstage
from millstream.model.errors import MessageRefused
from millstream.model.message import OutgoingMessage, StoredMessage
from millstream.model.properties import TIMER_OF

__all__ = [
    "LEVELS_S",
    "MAX_DELAY_MS",
    "TIMER_TOPIC",
    "delivered_message_of",
    "due_ms_of",
    "timer_of",
    "waiting",
    "without_delay",
]

TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""The system topic whose queue 0 holds what waits."""

MAX_DELAY_MS: Final = 259_200_000
"""How far ahead a message may be due: 3 days."""

LEVELS_S: Final = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""The delays of the levels 1 to 18; a higher level is the last one."""

_LEVEL, _DELIVER_MS, _DELAY_MS, _DELAY_SEC = "DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"
_WISHES = frozenset((_LEVEL, _DELIVER_MS, _DELAY_MS, _DELAY_SEC))
_DUE = "TIMER_OUT_MS"


def due_ms_of(properties: Mapping[str, str], now_ms: int) -> int | None:
    """When the message is due, None if it is not delayed. Raises ILLEGAL_DELIVERY_TIME."""
    level = properties.get(_LEVEL, "0")
    if level != "0":
        number = _number(_LEVEL, level)
        return now_ms + LEVELS_S[min(number, len(LEVELS_S)) - 1] * 1000 if number > 0 else None
    if _DELIVER_MS in properties:
        due_ms = _number(_DELIVER_MS, properties[_DELIVER_MS])
    elif _DELAY_MS in properties:
        due_ms = now_ms + _number(_DELAY_MS, properties[_DELAY_MS])
    elif _DELAY_SEC in properties:
        due_ms = now_ms + _number(_DELAY_SEC, properties[_DELAY_SEC]) * 1000
    else:
        return None
    if due_ms - now_ms > MAX_DELAY_MS:
        raise MessageRefused(
            "ILLEGAL_DELIVERY_TIME",
            f"The message is due in {(due_ms - now_ms) // 1000} s; {MAX_DELAY_MS // 1000} s is the limit.",
        )
    return due_ms


def _number(name: str, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = -1
    if number < 0:
        raise MessageRefused("ILLEGAL_DELIVERY_TIME", f"{name} is {value[:40]!r}, which is no time.")
    return number


def without_delay(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a message that does not wait."""
    return {k: v for k, v in properties.items() if k not in _WISHES and k != TIMER_OF}


def waiting(message: OutgoingMessage, queue_id: int, due_ms: int) -> OutgoingMessage:
    """The message as it waits in the timer topic."""
    return stage(message, TIMER_TOPIC, queue_id, **{_DUE: str(due_ms)})


def timer_of(message: StoredMessage | OutgoingMessage) -> int | None:
    """When a record of the timer topic is due; None if it cannot be told."""
    due = message.properties.get(_DUE, "")
    return int(due) if due.isdecimal() else None


def delivered_message_of(message: StoredMessage) -> OutgoingMessage | None:
    """The message as it goes to its own topic and queue; None for a record that names none."""
    outgoing = unstage(message, without=(_DUE,))
    if outgoing is not None:
        outgoing.properties[TIMER_OF] = str(message.queue_offset)
    return outgoing
