"""The supported queue arguments and their valid values. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from millstream.protocol.amqp.field_table import FieldTable
from millstream.protocol.amqp.reply_codes import ChannelFailure, ReplyCode

__all__ = ["MAX_PRIORITIES", "check_queue_arguments"]

MAX_PRIORITIES: Final = 255
"""The highest `x-max-priority`; RabbitMQ's limit."""

_MAX_MS: Final = 2**32 - 1
_OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
_TYPES: Final = ("classic", "quorum")


def _is_number(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_RULES: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "x-message-ttl": (_is_number(0, _MAX_MS), f"a number of 0 to {_MAX_MS}, in milliseconds"),
    "x-expires": (_is_number(1, _MAX_MS), f"a number of 1 to {_MAX_MS}, in milliseconds"),
    "x-max-length": (_is_number(0, 2**63 - 1), "a number of 0 or more"),
    "x-max-length-bytes": (_is_number(0, 2**63 - 1), "a number of 0 or more"),
    "x-overflow": (_OVERFLOWS.__contains__, f"one of {', '.join(_OVERFLOWS)}"),
    "x-dead-letter-exchange": (_is_text, "a text"),
    "x-dead-letter-routing-key": (_is_text, "a text"),
    "x-max-priority": (_is_number(0, MAX_PRIORITIES), f"a number of 0 to {MAX_PRIORITIES}"),
    "x-queue-type": (_TYPES.__contains__, f"one of {', '.join(_TYPES)}"),
    "x-single-active-consumer": (lambda value: isinstance(value, bool), "true or false"),
    "x-delivery-limit": (_is_number(0, 2**31), "a number of 0 or more"),
}


def check_queue_arguments(arguments: FieldTable, what: str) -> None:
    """Refuse a value that means nothing (PRECONDITION_FAILED); arguments of other names are kept without effect."""
    for name, value in arguments.items():
        is_legal, words = _RULES.get(name, (None, ""))
        if is_legal is not None and not is_legal(value):
            raise _bad_argument(name, what, f"{value!r} is not {words}")
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        raise _bad_argument("x-dead-letter-routing-key", what, "there is no x-dead-letter-exchange")


def _bad_argument(name: str, what: str, why: str) -> ChannelFailure:
    return ChannelFailure(ReplyCode.PRECONDITION_FAILED, f"invalid arg '{name}' for {what}: {why}")
