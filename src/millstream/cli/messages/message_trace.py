"""`millstream message trace`: what became of one message."""

from __future__ import annotations

from datetime import UTC, datetime

from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer
from millstream.client.blocking import BlockingClient
from millstream.client.message_timeline import TimelineEvent, message_timeline
from millstream.model.errors import NameRefused, Refused
from millstream.model.message import StoredMessage
from millstream.protocol.trace import TRACE_TOPIC, decode_traces

__all__ = ["trace"]

_MAX_RESULTS = 64
"""Trace messages that are looked at; a server gives no more for one key."""

_UNKNOWN = "unknown"


def trace(message_id: str, *, common: CommonOptions = CommonOptions()) -> int:
    """Show the life of a message: when it was sent, delivered and consumed, as far as traces know.

    Parameters
    ----------
    message_id
        The message's id, as producers and consumers see it.
    """
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        found = _traces(client, message_id)
    records = [record for message in found for record in decode_traces(message.body)]
    steps = message_timeline(records, message_id)
    if not steps:
        raise Refused("TRACE_NOT_FOUND", f"No trace tells of the message {message_id[:200]!r}.")
    printer = Printer(common.output)
    show = _values if printer.format == "json" else _words
    printer.listing(
        ("at", "step", "topic", "group", "attempt", "outcome", "took_ms", "detail"),
        [show(step) for step in steps],
        empty="",
    )
    return ExitCode.DONE


def _traces(client: BlockingClient, message_id: str) -> list[StoredMessage]:
    try:
        return client.find_by_key(TRACE_TOPIC, message_id, max_results=_MAX_RESULTS)
    except NameRefused as error:
        if error.name != "TOPIC_NOT_FOUND":
            raise
        return []


def _values(step: TimelineEvent) -> tuple[str | int | None, ...]:
    at = datetime.fromtimestamp(step.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return at, step.what, step.topic, step.group, step.attempt, step.outcome, step.took_ms, step.detail


def _words(step: TimelineEvent) -> tuple[str | int | None, ...]:
    """As `_values`, where a blank would not say that nobody knows: the outcome."""
    at, what, topic, group, attempt, outcome, took_ms, detail = _values(step)
    return at, what, topic, group, attempt, outcome or _UNKNOWN, took_ms, detail
