"""The frames between a master and a replica, all numbers big-endian.

master -> replica  HANDSHAKE  int32 1 | int32 body size | int64 log end | int32 epoch | n x (int32 epoch, int64 start)
master -> replica  TRANSFER   int32 2 | int32 body size | int64 log offset | int32 epoch | int64 start of the epoch
                              | int64 confirmed | records
master -> replica  SHUTDOWN   int32 4 | int32 reason
replica -> master  ACK        int32 2 | int64 written | int64 flushed | int32 epoch

The states and both HANDSHAKE and TRANSFER of the master are those of RocketMQ's controller mode
(`AutoSwitchHAConnection`). Its replica acknowledges with 12 bytes, without `flushed` and epoch; ours states both.
SHUTDOWN with a reason is ours.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

__all__ = [
    "ACK_BYTES",
    "MAX_EPOCHS",
    "MAX_TRANSFER_BYTES",
    "Ack",
    "EpochStart",
    "FrameBuffer",
    "FrameError",
    "Handshake",
    "Shutdown",
    "ShutdownReason",
    "SourceFrame",
    "Transfer",
    "split_acks",
]

MAX_EPOCHS: Final = 1000
"""Epochs that a handshake names at most, as in RocketMQ."""

MAX_TRANSFER_BYTES: Final = 36 * 1024 * 1024
"""Bytes of records in one TRANSFER at most: more than the largest record, which is never divided."""

_HANDSHAKE, _TRANSFER, _SHUTDOWN = 1, 2, 4
_STATE_AND_SIZE = struct.Struct(">ii")
_HANDSHAKE_HEAD = struct.Struct(">iiqi")
_EPOCH = struct.Struct(">iq")
_TRANSFER_HEAD = struct.Struct(">iiqiqq")
_ACK = struct.Struct(">iqqi")

ACK_BYTES: Final = _ACK.size
"""Bytes of an acknowledgement."""


class FrameError(ValueError):
    """Bytes that are no frame: the connection they came on is of no use any more."""


class EpochStart(NamedTuple):
    """From `log_offset` on the log was written in `epoch`."""

    epoch: int
    log_offset: int


class ShutdownReason(IntEnum):
    """Why a session ends; the numbers go over the wire and stay as they are."""

    OUT_OF_RANGE = 1  # nothing that the replica has continues in the source's log
    EPOCH_CHANGED = 2  # the other side is in another epoch
    FALSE_ACK = 3  # the replica claims what it was never sent
    SILENT = 4  # nothing came for too long
    OFFSET_GAP = 5  # records that do not begin where the replica's log ends
    DAMAGED = 6  # a record that is damaged or of another place
    REPLACED = 7  # the same replica has connected again
    NO_FRAME = 8  # bytes that are no frame, or none that is expected here


@dataclass(frozen=True, slots=True)
class Handshake:
    """What the source has. `epochs` are the starts of its epochs, oldest first."""

    log_end: int
    epoch: int
    epochs: tuple[EpochStart, ...]

    def encode(self) -> bytes:
        """The frame's bytes. Raises FrameError for more than MAX_EPOCHS epochs."""
        if len(self.epochs) > MAX_EPOCHS:
            raise FrameError(f"A handshake names {len(self.epochs)} epochs; {MAX_EPOCHS} are the most.")
        body = b"".join(_EPOCH.pack(*start) for start in self.epochs)
        return _HANDSHAKE_HEAD.pack(_HANDSHAKE, len(body), self.log_end, self.epoch) + body


@dataclass(frozen=True, slots=True)
class Transfer:
    """Records of one epoch. `body` is empty in a heartbeat."""

    log_offset: int
    epoch: int
    epoch_start: int
    confirmed: int
    body: bytes = b""

    def encode(self) -> bytes:
        """The frame's bytes."""
        head = _TRANSFER_HEAD.pack(
            _TRANSFER, len(self.body), self.log_offset, self.epoch, self.epoch_start, self.confirmed
        )
        return head + self.body


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The source ends the session."""

    reason: ShutdownReason

    def encode(self) -> bytes:
        """The frame's bytes."""
        return _STATE_AND_SIZE.pack(_SHUTDOWN, self.reason)


SourceFrame = Handshake | Transfer | Shutdown


@dataclass(frozen=True, slots=True)
class Ack:
    """Up to where the replica's log is written and flushed, in which epoch."""

    written: int
    flushed: int
    epoch: int

    def encode(self) -> bytes:
        """The frame's bytes."""
        return _ACK.pack(_TRANSFER, self.written, self.flushed, self.epoch)


def split_acks(data: bytearray) -> list[Ack]:
    """The whole acknowledgements at the head of `data`, which are taken out of it. Raises FrameError."""
    count = len(data) // ACK_BYTES
    acks = []
    for state, written, flushed, epoch in _ACK.iter_unpack(bytes(data[: count * ACK_BYTES])):
        if state != _TRANSFER or not 0 <= flushed <= written or epoch < 0:
            raise FrameError(f"No acknowledgement: state {state}, written {written}, flushed {flushed}, epoch {epoch}.")
        acks.append(Ack(written, flushed, epoch))
    del data[: count * ACK_BYTES]
    return acks


class FrameBuffer:
    """Bytes from a source in, whole frames out."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[SourceFrame]:
        """The frames that are whole now. Raises FrameError for what is no frame, before its body is waited for."""
        self._data += data
        while (frame := self._take()) is not None:
            yield frame

    def _take(self) -> SourceFrame | None:
        if len(self._data) < _STATE_AND_SIZE.size:
            return None
        state, size = _STATE_AND_SIZE.unpack_from(self._data)
        if state == _SHUTDOWN:
            del self._data[: _STATE_AND_SIZE.size]
            return Shutdown(_reason(size))
        if state == _HANDSHAKE:
            _check_size(size, MAX_EPOCHS * _EPOCH.size, _EPOCH.size)
            return self._take_handshake(size)
        if state == _TRANSFER:
            _check_size(size, MAX_TRANSFER_BYTES, 1)
            return self._take_transfer(size)
        raise FrameError(f"No frame has the state {state}.")

    def _take_handshake(self, size: int) -> Handshake | None:
        whole = _HANDSHAKE_HEAD.size + size
        if len(self._data) < whole:
            return None
        _, _, log_end, epoch = _HANDSHAKE_HEAD.unpack_from(self._data)
        body = bytes(self._data[_HANDSHAKE_HEAD.size : whole])
        del self._data[:whole]
        return Handshake(log_end, epoch, tuple(EpochStart(*pair) for pair in _EPOCH.iter_unpack(body)))

    def _take_transfer(self, size: int) -> Transfer | None:
        whole = _TRANSFER_HEAD.size + size
        if len(self._data) < whole:
            return None
        _, _, log_offset, epoch, epoch_start, confirmed = _TRANSFER_HEAD.unpack_from(self._data)
        body = bytes(self._data[_TRANSFER_HEAD.size : whole])
        del self._data[:whole]
        return Transfer(log_offset, epoch, epoch_start, confirmed, body)


def _check_size(size: int, limit: int, multiple: int) -> None:
    if not 0 <= size <= limit or size % multiple:
        raise FrameError(f"A body of {size} bytes: 0 to {limit} in steps of {multiple} are allowed.")


def _reason(number: int) -> ShutdownReason:
    try:
        return ShutdownReason(number)
    except ValueError:
        raise FrameError(f"No session ends for the reason {number}.") from None
