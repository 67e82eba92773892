"""`millstream message`: look messages up, send them again, take delayed ones back."""

from __future__ import annotations

import json
import time
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.messages.near_names import cluster
from millstream.cli.messages.shown_message import body_of, details_of, values_of
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer
from millstream.client.blocking import BlockingClient
from millstream.model import properties as names
from millstream.model.errors import MessageRefused
from millstream.model.message import Message, StoredMessage
from millstream.model.recall import RecallHandle
from millstream.model.topic import MessageType

__all__ = ["find", "get", "recall", "resend"]

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
