"""A replica's fetch from its master, code 9120, and the response.

Ours: RocketMQ's replicas have a port and frames of their own, which let everybody in.

A fetch is an acknowledgement as well: all before `log_offset` is written at the replica, and before `flushed` it is on
the disk there. The answer's body holds whole records; in an answer that says `diverged` it is a JSON list of the starts
of the master's epochs, each `[epoch, log offset]`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from millstream.model.errors import MessageRefused
from millstream.protocol.remoting.fields import Request, flag_field, number_field, optional_number_field, text_field

__all__ = [
    "MAX_EPOCHS",
    "NO_EPOCH",
    "FetchAnswer",
    "FetchOutcome",
    "FetchRequest",
    "HandoverRequest",
    "RangeAnswer",
    "RangeRequest",
    "SeedFileRequest",
    "decode_epochs",
    "encode_epochs",
]

MAX_EPOCHS: Final = 1000
"""Epochs that an answer names at most, the latest ones; as in RocketMQ's handshake."""

# The epoch of a log that has none.
NO_EPOCH: Final = -1


class FetchOutcome(StrEnum):
    """What an answer to a fetch says."""

    RECORDS = "records"
    """The body follows the replica's log; it may be empty."""
    DIVERGED = "diverged"
    """The replica's log went on otherwise than the master's: it is to cut its own."""
    OUT_OF_RANGE = "out-of-range"
    """The master has let go of what would follow."""


@dataclass(frozen=True, slots=True)
class FetchRequest(Request):
    """Code 9120. Offsets are bytes of the log."""

    cluster: str = text_field("clusterName")
    name: str = text_field("brokerName")
    broker_id: int = number_field("brokerId")
    """The controller id of the replica."""
    epoch: int = number_field("masterEpoch")
    """The replica takes records of the master of this epoch alone."""
    log_offset: int = number_field("logOffset")
    """Where the replica's log ends."""
    flushed: int = number_field("flushedOffset")
    confirmed: int = number_field("confirmedOffset")
    """Up to where the replica knows that all have the log."""
    last_epoch: int = number_field("lastEpoch")
    """The epoch in which the end of the replica's log was written, and where that one began; -1 where it has none."""
    last_epoch_start: int = number_field("lastEpochStart")
    segment_bytes: int = number_field("segmentBytes")
    """The size of the log's files, which must be that of the master."""
    max_bytes: int = number_field("maxBytes")
    wait_ms: int = number_field("waitMs", 0)
    """How long the master may wait for something to send."""
    is_leaving: bool = flag_field("leaving")
    """The replica stops: the master is to go on without it, and answers when the set lacks it or it cannot be so."""
    is_doubtful: bool = flag_field("doubtful")
    """What the master sent last was damaged: it is to look at its log there."""
    damaged_bytes: int = number_field("damagedBytes", 0)
    """Bytes of the replica's log that are damaged and not mended yet."""


@dataclass(frozen=True, slots=True)
class FetchAnswer(Request):
    """The fields of the answer."""

    outcome: str = text_field("outcome")
    """One of `FetchOutcome`."""
    epoch: int = number_field("masterEpoch")
    log_offset: int = number_field("logOffset")
    """Where the records begin: the asked offset, or the start of the next file."""
    records_epoch: int = number_field("recordsEpoch")
    """In which epoch the records were written, and where that one began."""
    records_epoch_start: int = number_field("recordsEpochStart")
    confirmed: int = number_field("confirmedOffset")
    log_start: int = number_field("logStart")
    log_end: int = number_field("logEnd")


@dataclass(frozen=True, slots=True)
class HandoverRequest(Request):
    """Code 9125; answered by the fields of the new master."""

    target: int | None = optional_number_field("brokerId")
    """The replica that becomes the master; None leaves that to the present one."""


@dataclass(frozen=True, slots=True)
class SeedFileRequest(Request):
    """Code 9123: a part of a file that a seed names."""

    path: str = text_field("path")
    offset: int = number_field("offset")


@dataclass(frozen=True, slots=True)
class RangeRequest(Request):
    """Code 9124: a part of the log that is damaged at who asks. Offsets are bytes of the log."""

    cluster: str = text_field("clusterName")
    name: str = text_field("brokerName")
    epoch: int = number_field("epoch")
    """The epoch in which the last byte of the part was written, and where that one began; -1 where it has none."""
    epoch_start: int = number_field("epochStart")
    start: int = number_field("startOffset")
    """Where the part begins, and a record does."""
    end: int = number_field("endOffset")


@dataclass(frozen=True, slots=True)
class RangeAnswer(Request):
    """The fields of the answer. Its body holds whole records from the start on, whose checksums were looked at."""

    end: int = number_field("endOffset")
    """Behind the last record, or the end of the log's file where nothing follows there. It may lie before the end that
    was asked for: the rest is asked for again."""


_decode = msgspec.json.Decoder(list[tuple[int, int]]).decode


def encode_epochs(starts: Iterable[tuple[int, int]]) -> bytes:
    """The body of an answer that says `diverged`: the latest `MAX_EPOCHS` of the starts."""
    return msgspec.json.encode([*starts][-MAX_EPOCHS:])


def decode_epochs(body: bytes) -> list[tuple[int, int]]:
    """The starts of the master's epochs, oldest first. Raises MESSAGE_MALFORMED."""
    try:
        return _decode(body)
    except msgspec.DecodeError as error:
        raise MessageRefused("MESSAGE_MALFORMED", f"The epochs of a master cannot be read: {error}.") from None
