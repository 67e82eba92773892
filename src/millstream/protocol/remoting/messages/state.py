"""Code 9150: records of a topic in which proxies keep state. Fields and body are those of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.batch import decode_batch, encode_batch_item
from millstream.protocol.remoting.messages.sends import decode_send, encode_send

__all__ = ["decode_state", "encode_state"]

_GROUP: Final = "MILLSTREAM_PROXY"


def encode_state(broker_name: str, messages: Sequence[OutgoingMessage]) -> RemotingCommand:
    """The request that stores records of one topic, which share the born time of the first one.

    PROPERTIES_TOO_LARGE where the properties of one do not fit.
    """
    first = messages[0]
    fields = encode_send(
        first.topic, 0, broker_name, "", group=_GROUP, born_ms=first.born_timestamp_ms, is_batch=True
    )  # fmt: skip
    body = b"".join(encode_batch_item(message.body, message.properties) for message in messages)
    return RemotingCommand(RequestCode.STORE_STATE, fields, body)


def decode_state(ext: Mapping[str, str], body: bytes, peer: Address) -> list[OutgoingMessage]:
    """The records of a request that came from `peer`; MESSAGE_MALFORMED."""
    first = decode_send(ext, b"", peer, is_short=True).message
    return [
        OutgoingMessage(
            first.topic,
            one_body,
            held,
            queue_id=first.queue_id,
            born_timestamp_ms=first.born_timestamp_ms,
            born_host=first.born_host,
        )
        for one_body, held, _ in decode_batch(body)
    ]
