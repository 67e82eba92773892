"""`millstream message`: look messages up."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.options import Common, ExitCode
from millstream.cli.printer import Printer
from millstream.client.blocking import BlockingClient
from millstream.model.recall import RecallHandle

__all__ = ["find", "recall"]

_MAX_RESULTS = 64


def find(
    topic: str,
    key: str,
    *,
    count: Annotated[int, Parameter(validator=Number(gte=1, lte=_MAX_RESULTS))] = 32,
    common: Common = Common(),
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
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        found = client.find_by_key(topic, key, max_results=count)
    rows = [
        (
            message.queue_id,
            message.queue_offset,
            message.store_timestamp_ms,
            message.message_id,
            message.tag,
            message.body.decode("utf-8", "replace"),
        )
        for message in found
    ]
    Printer(common.output).listing(
        ("queue", "offset", "stored_ms", "message_id", "tag", "body"),
        rows,
        empty=f"Topic {topic} has no message with the key {key!r}.",
    )
    return ExitCode.DONE


def recall(handle: str, *, common: Common = Common()) -> int:
    """Take a delayed message back, so that it is never delivered.

    Example: millstream message recall djEgcmVtaW5k...

    Parameters
    ----------
    handle
        The recall handle that the send showed.
    """
    wanted = RecallHandle.decode(handle)
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        client.recall(wanted)
    Printer(common.output).record(
        {"message_id": wanted.message_id, "topic": wanted.topic, "recalled": True},
        sentence=f"{wanted.message_id} is recalled; it will not come to {wanted.topic}",
    )
    return ExitCode.DONE
