"""Requests that carry messages, the meaning of their responses, and the step of a sans-io operation."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from millstream.client.values import PullBatch, QueueAddress, SendResult
from millstream.model.errors import ConnectionFailed
from millstream.model.filter import MessageFilter
from millstream.model.operations import PullStatus
from millstream.model.properties import encode_properties
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import UNCAPPED
from millstream.protocol.remoting.messages.pulls import PullCall, encode_pull
from millstream.protocol.remoting.messages.sends import encode_send
from millstream.protocol.remoting.refusals import error_of

__all__ = [
    "DEFAULT_GROUP",
    "DEFAULT_PULL_BYTES",
    "DEFAULT_PULL_MESSAGES",
    "MAX_BATCH_BYTES",
    "MAX_BATCH_MESSAGES",
    "PULL_STATUSES",
    "ClientOperation",
    "RequestStep",
    "address_to",
    "answered_integer",
    "choose_other_broker",
    "pull",
    "pull_batch_of",
    "refresh_address",
    "send_batch",
    "send_one",
    "send_results_of",
]


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RequestStep:
    """Send `command` to `address` (`host:port`) and wait for the answer, `extra_wait_s` longer than usual.

    `delay_s` is to pass before it is sent.
    """

    address: str
    command: RemotingCommand
    extra_wait_s: float = 0.0
    delay_s: float = 0.0


ClientOperation = Generator[RequestStep, RemotingCommand, _T]


DEFAULT_GROUP: Final = "MILLSTREAM_CLIENT"
"""The producer and consumer group of requests for which the application names none; brokers do not keep it."""

DEFAULT_PULL_MESSAGES: Final = 4096
DEFAULT_PULL_BYTES: Final = 2 * 1024 * 1024
"""What one pull asks for at most; a RocketMQ broker gives 32 messages and 256 KiB whatever is asked."""

MAX_BATCH_MESSAGES: Final = 1000
MAX_BATCH_BYTES: Final = 1024 * 1024
"""Messages and body bytes of one batch request at most. A batch of one message may be larger."""

PULL_STATUSES: Final[dict[int, PullStatus]] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NOTHING_NEW,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.ALL_FILTERED,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


def _send_fields(queue: QueueAddress, group: str, properties: str, *, batch: bool) -> dict[str, str]:
    born_ms = time.time_ns() // 1_000_000
    return encode_send(
        queue.topic, queue.queue_id, queue.broker_name, properties, group=group, born_ms=born_ms, is_batch=batch
    )


def send_one(queue: QueueAddress, body: bytes, properties: Mapping[str, str], *, group: str) -> RemotingCommand:
    """The request that stores one message."""
    fields = _send_fields(queue, group, encode_properties(properties).decode(), batch=False)
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, body)


def send_batch(queue: QueueAddress, items: Sequence[bytes], *, group: str) -> RemotingCommand:
    """The request that stores the items of a batch body in one queue."""
    return RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, _send_fields(queue, group, "", batch=True), b"".join(items))


def refresh_address(queue: QueueAddress, present: Sequence[QueueAddress]) -> QueueAddress:
    """The same queue as it is reached now; the old one where nobody knows."""
    same = (item for item in present if (item.broker_name, item.queue_id) == (queue.broker_name, queue.queue_id))
    return next(same, queue)


def choose_other_broker(queue: QueueAddress, present: Sequence[QueueAddress]) -> QueueAddress:
    """A queue of another broker, the same one for the same queue; its own where there is no other broker."""
    others = [item for item in present if item.broker_name != queue.broker_name]
    return others[queue.queue_id % len(others)] if others else refresh_address(queue, present)


def address_to(command: RemotingCommand, queue: QueueAddress) -> None:
    """Have a send request go to that queue."""
    if "n" in command.ext:
        command.ext.update(e=str(queue.queue_id), n=queue.broker_name)


def send_results_of(answer: RemotingCommand, queue: QueueAddress, message_ids: Sequence[str]) -> list[SendResult]:
    """The receipts of a send, one per message; the error of the answer otherwise."""
    if answer.code != ResponseCode.SUCCESS:
        raise error_of(answer, queue.broker_address)
    first = answered_integer(answer, "queueOffset", queue.broker_address)
    number = answered_integer(answer, "queueId", queue.broker_address)
    place = (
        queue
        if number == queue.queue_id
        else QueueAddress(queue.topic, queue.broker_name, number, queue.broker_address)
    )
    offset_ids = answer.ext.get("msgId", "").split(",")
    if len(offset_ids) != len(message_ids):
        offset_ids = [""] * len(message_ids)
    pairs = zip(message_ids, offset_ids, strict=True)
    handle = answer.ext.get("recallHandle", "")
    return [
        SendResult(message_id, place, first + index, offset_id, handle)
        for index, (message_id, offset_id) in enumerate(pairs)
    ]


def pull(
    queue: QueueAddress,
    offset: int,
    *,
    group: str,
    max_messages: int,
    max_bytes: int,
    wait_ms: int,
    filter: MessageFilter,
) -> RemotingCommand:
    """The request that reads a queue; `wait_ms` 0 answers at once."""
    call = PullCall(
        group, queue.topic, queue.queue_id, offset, max_messages, max_bytes, filter, wait_ms=max(wait_ms, 0)
    )
    fields = {**encode_pull(call), "bname": queue.broker_name, **UNCAPPED}
    return RemotingCommand(RequestCode.PULL_MESSAGE, fields)


def pull_batch_of(answer: RemotingCommand, address: str, *, offset: int = 0) -> PullBatch:
    """The batch of an answer to `pull` from `offset` on; the error of the answer otherwise."""
    status = PULL_STATUSES.get(answer.code)
    if status is None:
        raise error_of(answer, address)
    return PullBatch(
        status,
        answered_integer(answer, "nextBeginOffset", address),
        answered_integer(answer, "minOffset", address),
        answered_integer(answer, "maxOffset", address),
        answer.body,
        offset,
    )


def answered_integer(answer: RemotingCommand, name: str, address: str) -> int:
    """A number of the answer; PROTOCOL_VIOLATION where it is missing."""
    try:
        return int(answer.ext[name])
    except (KeyError, ValueError):
        raise ConnectionFailed(
            "PROTOCOL_VIOLATION", f"The answer of {address} has no number {name}: {answer.ext.get(name)!r}."
        ) from None
