"""Frames between master and replica: whole in any pieces, refused before their bodies are waited for."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.replication_frames import (
    MAX_EPOCHS,
    MAX_TRANSFER_BYTES,
    Ack,
    EpochStart,
    FrameBuffer,
    FrameError,
    Handshake,
    Shutdown,
    ShutdownReason,
    Transfer,
    split_acks,
)

INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)
FRAMES = st.one_of(
    st.builds(Handshake, INT64, INT32, st.lists(st.builds(EpochStart, INT32, INT64), max_size=5).map(tuple)),
    st.builds(Transfer, INT64, INT32, INT64, INT64, st.binary(max_size=50)),
    st.builds(Shutdown, st.sampled_from(ShutdownReason)),
)


@given(frames=st.lists(FRAMES, max_size=5), piece=st.integers(1, 40))
def test_frames_are_read_as_they_were_written_in_pieces_of_any_size(frames: list[Transfer], piece: int) -> None:
    data = b"".join(frame.encode() for frame in frames)
    buffer = FrameBuffer()
    found = [frame for begin in range(0, len(data), piece) for frame in buffer.feed(data[begin : begin + piece])]
    assert found == frames


@pytest.mark.parametrize(
    "head",
    [
        struct.pack(">ii", 3, 0),
        struct.pack(">ii", 0x47455420, 0),
        struct.pack(">ii", 2, MAX_TRANSFER_BYTES + 1),
        struct.pack(">ii", 2, -1),
        struct.pack(">ii", 1, 12 * MAX_EPOCHS + 12),
        struct.pack(">ii", 1, 13),
        struct.pack(">ii", 4, 99),
    ],
)
def test_what_is_no_frame_is_refused_at_its_head(head: bytes) -> None:
    with pytest.raises(FrameError):
        list(FrameBuffer().feed(head))


def test_a_handshake_names_a_bounded_number_of_epochs() -> None:
    with pytest.raises(FrameError, match=str(MAX_EPOCHS)):
        Handshake(0, 1, (EpochStart(1, 0),) * (MAX_EPOCHS + 1)).encode()


@given(written=INT64, flushed=INT64, epoch=INT32, rest=st.binary(max_size=23))
def test_an_acknowledgement_is_whole_or_waited_for_and_never_claims_more_flushed_than_written(
    written: int, flushed: int, epoch: int, rest: bytes
) -> None:
    ack = Ack(written, flushed, epoch)
    data = bytearray(ack.encode() + rest)
    if flushed > written:
        with pytest.raises(FrameError):
            split_acks(data)
        return
    assert split_acks(data) == [ack]
    assert data == rest
