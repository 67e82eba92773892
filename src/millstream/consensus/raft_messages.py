"""The messages between Raft members, encoded as MessagePack with a tag for each kind."""

from __future__ import annotations

from typing import Final

import msgspec

from millstream.model.errors import ConnectionFailed

__all__ = [
    "MAX_ENTRY_BYTES",
    "MAX_MESSAGE_BYTES",
    "AppendAnswer",
    "AppendEntries",
    "Entry",
    "RaftMessage",
    "SnapshotAnswer",
    "SnapshotChunk",
    "VoteAnswer",
    "VoteRequest",
    "decode_message",
    "encode_message",
]

MAX_ENTRY_BYTES: Final = 1024 * 1024
"""Bytes of one entry at most."""

MAX_MESSAGE_BYTES: Final = 2 * 1024 * 1024
"""Bytes of one message at most: entries that share a message are bounded by less."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry of the log. Empty data is the entry with which a leader begins its term."""

    term: int
    data: bytes


class VoteRequest(msgspec.Struct, frozen=True, tag="vote"):
    """A candidate asks for a vote; `is_pre` asks only whether it would be given, and changes nothing."""

    term: int
    last_index: int
    last_term: int
    is_pre: bool = False


class VoteAnswer(msgspec.Struct, frozen=True, tag="voted"):
    """`term` is that of the request where the vote is given, else the voter's own."""

    term: int
    is_given: bool
    is_pre: bool = False


class AppendEntries(msgspec.Struct, frozen=True, tag="append"):
    """The leader's entries behind `previous_index`; none in a heartbeat. `round` numbers what reads wait for."""

    term: int
    previous_index: int
    previous_term: int
    commit_index: int
    round: int
    entries: tuple[Entry, ...] = ()


class AppendAnswer(msgspec.Struct, frozen=True, tag="appended"):
    """`match_index` is up to where the logs agree; where they do not, the largest index that may."""

    term: int
    is_accepted: bool
    match_index: int
    round: int


class SnapshotChunk(msgspec.Struct, frozen=True, tag="snapshot"):
    """A part of the leader's snapshot, which holds all entries up to `index`."""

    term: int
    index: int
    index_term: int
    offset: int
    total_bytes: int
    round: int
    data: bytes


class SnapshotAnswer(msgspec.Struct, frozen=True, tag="snapshot-taken"):
    """How much of that snapshot has come; all of it once it is persisted."""

    term: int
    index: int
    received_bytes: int
    round: int


RaftMessage = VoteRequest | VoteAnswer | AppendEntries | AppendAnswer | SnapshotChunk | SnapshotAnswer

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RaftMessage)


def encode_message(message: RaftMessage) -> bytes:
    """The message as bytes."""
    return _encoder.encode(message)


def decode_message(data: bytes) -> RaftMessage:
    """The message of these bytes. Raises PROTOCOL_VIOLATION for what is none, or is larger than `MAX_MESSAGE_BYTES`."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise ConnectionFailed("PROTOCOL_VIOLATION", f"A message of a controller has {len(data)} bytes.")
    try:
        message: RaftMessage = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise ConnectionFailed("PROTOCOL_VIOLATION", f"A message of a controller cannot be read: {error}.") from None
    return message
