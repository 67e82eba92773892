"""`millstream message`: look up, trace, resend and recall messages."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.messages.near_names import cluster
from millstream.cli.messages.shown_message import body_of, details_of, values_of
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer
from millstream.client.blocking import BlockingClient
from millstream.client.message_timeline import TimelineEvent, message_timeline
from millstream.model import properties as names
from millstream.model.errors import MessageRefused, NameRefused, Refused
from millstream.model.handles import RecallHandle
from millstream.model.message import Message, StoredMessage
from millstream.model.topic import MessageType
from millstream.protocol.trace import TRACE_TOPIC, decode_traces

__all__ = ["find", "get", "recall", "resend", "trace"]


_MAX_RESULTS = 64


def find(
    topic: str,
    key: str,
    *,
    count: Annotated[int, Parameter(validator=Number(gte=1, lte=_MAX_RESULTS))] = 32,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Find messages by key or by message id, newest first.

    Parameters
    ----------
    topic
        The topic they are in.
    key
        One of the keys that their sender gave them, or their message id.
    count
        How many at most.
    """
    with cluster(common) as client:
        found = client.find_by_key(topic, key, max_results=count)
    rows = [
        (
            message.queue_id,
            message.queue_offset,
            message.store_timestamp_ms,
            message.message_id,
            message.tag,
            body_of(message).decode("utf-8", "replace"),
        )
        for message in found
    ]
    Printer(common.output).listing(
        ("queue", "offset", "stored_ms", "message_id", "tag", "body"),
        rows,
        empty=f"Topic {topic} has no message with the key {key!r}.",
    )
    return ExitCode.DONE


def get(
    id: str,
    *,
    topic: str | None = None,
    count: Annotated[int, Parameter(validator=Number(gte=1, lte=_MAX_RESULTS))] = 8,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Show a message with all that is known of it.

    Examples: millstream message get C0A8000201A2...; millstream message get 4711 --topic orders.

    Parameters
    ----------
    id
        Its message id, its offset id or one of its keys.
    topic
        The topic that it is in; without it all topics are searched.
    count
        How many at most, if several have the key; newest first.
    """
    with cluster(common) as client:
        found = _find_messages(client, id, topic, count)
    for number, message in enumerate(found):
        if Printer(common.output).format == "json":
            print(json.dumps(values_of(message), ensure_ascii=False), flush=True)
            continue
        body = body_of(message)
        print("\n".join([*([""] if number else []), *details_of(message), f"body        {len(body):,} bytes", ""]))
        print(body.decode("utf-8", "replace"), flush=True)
    return ExitCode.DONE


def resend(id: str, *, topic: str | None = None, to: str | None = None, common: CommonOptions = CommonOptions()) -> int:
    """Send a copy of a message, with its body, tag, keys, message group, priority and properties; it gets a new id.

    Examples: millstream message resend C0A8000201A2...; millstream message resend 4711 --topic orders --to orders-test.

    Parameters
    ----------
    id
        Its message id, its offset id or one of its keys; refused if several messages have it.
    topic
        The topic that it is in; without it all topics are searched.
    to
        The topic to send the copy to; default: the message's own.
    """
    with cluster(common) as client:
        found = _find_messages(client, id, topic, 2)
        if len(found) > 1:
            places = " and ".join(f"{one.topic} {one.queue_id}:{one.queue_offset}" for one in found)
            raise MessageRefused("SEVERAL_MESSAGES", f"{id[:200]!r} names more than one message, as in {places}.")
        [message] = found
        target = to or message.topic
        is_delay = client.describe_topic(target).message_type is MessageType.DELAY
        sent = client.send(_copy(message, target, due_ms=time.time_ns() // 1_000_000 if is_delay else None))
    Printer(common.output).record(
        {
            "message_id": sent.message_id,
            "topic": target,
            "broker": sent.queue.broker_name,
            "queue": sent.queue.queue_id,
            "offset": sent.queue_offset,
            "copy_of": message.message_id,
        },
        sentence=f"sent {sent.message_id} to {target}, queue {sent.queue.queue_id}, offset {sent.queue_offset}, "
        f"a copy of {message.message_id}",
    )
    return ExitCode.DONE


def _find_messages(client: BlockingClient, id: str, topic: str | None, count: int) -> list[StoredMessage]:
    found = client.find_messages(id, topic, max_results=count)
    if not found:
        place = "No topic has a" if topic is None else f"Topic {topic!r} has no"
        words = f"{place} message with the id or key {id[:200]!r}."
        raise MessageRefused("NO_SUCH_MESSAGE", words)
    return found


def _copy(message: StoredMessage, topic: str, *, due_ms: int | None) -> Message:
    """`due_ms` is the present time for a topic that takes delayed messages alone: the copy comes at once."""
    return Message(
        topic,
        body_of(message),
        message.tag,
        message.keys,
        message.properties.get(names.MESSAGE_GROUP),
        message.user_properties,
        message.priority,
        message.properties.get(names.LITE_TOPIC),
        due_ms,
    )


def recall(handle: str, *, common: CommonOptions = CommonOptions()) -> int:
    """Take a delayed message back, so that it is never delivered.

    Example: millstream message recall djEgcmVtaW5k...

    Parameters
    ----------
    handle
        The recall handle that the send showed.
    """
    wanted = RecallHandle.decode(handle)
    with cluster(common) as client:
        client.recall(wanted)
    Printer(common.output).record(
        {"message_id": wanted.message_id, "topic": wanted.topic, "recalled": True},
        sentence=f"{wanted.message_id} is recalled; it will not come to {wanted.topic}",
    )
    return ExitCode.DONE


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
