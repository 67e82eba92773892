"""Frames between a broker and its cold process: whole and within their bounds, or refused."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.tiered.process.channel import Channel
from millstream.tiered.process.frames import (
    MAPPED_BYTES,
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    PREFIX_BYTES,
    BrokenFrame,
    ColdFrame,
    FramePlan,
    FrameReader,
    encode_frame,
)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=50), st.lists(st.binary(max_size=50), max_size=3))
def test_a_frame_comes_back_as_it_was(number: int, head: bytes, body: list[bytes]) -> None:
    data = b"".join(encode_frame(number, head, *body))
    plan = FramePlan.of(data[:PREFIX_BYTES])
    behind = PREFIX_BYTES + plan.head_bytes
    assert plan.frame(data[PREFIX_BYTES:behind], data[behind:]) == ColdFrame(number, head, b"".join(body))


frames = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=9), st.binary(max_size=9)), max_size=5)


@given(frames, st.lists(st.integers(1, 5000), min_size=1), st.integers(0, 20_000))
def test_a_reader_that_does_not_wait_finds_the_same_frames_however_they_are_cut(
    drawn: list[tuple[int, bytes, bytes]], cuts: list[int], long: int
) -> None:
    sent = [*drawn, (1, b"long", b"x" * long), *drawn]
    data = b"".join(piece for one in sent for piece in encode_frame(*one))
    reader, found, at, turn = FrameReader(), [], 0, 0
    while at < len(data):
        room = reader.buffer
        count = min(cuts[turn % len(cuts)], len(room), len(data) - at)
        assert count
        room[:count] = data[at : at + count]
        found += reader.take(count)
        at, turn = at + count, turn + 1
    assert [(one.number, bytes(one.head), bytes(one.body)) for one in found] == sent


@pytest.mark.parametrize("body_bytes", [MAPPED_BYTES - 6, MAPPED_BYTES - 5, MAPPED_BYTES + 5000, 1024 * 1024])
def test_long_bodies_come_whole_and_stay_when_the_next_ones_come(body_bytes: int) -> None:
    bodies = [bytes([number]) * body_bytes for number in range(3)]
    data = b"".join(piece for body in bodies for piece in encode_frame(7, b"head", body))
    reader, found, at = FrameReader(), list[ColdFrame](), 0
    while at < len(data):
        room = reader.buffer[: 32 * 1024]
        count = min(len(room), len(data) - at)
        room[:count] = data[at : at + count]
        found += reader.take(count)
        at += count
    assert [bytes(one.body) for one in found] == bodies
    assert all(isinstance(one.body, memoryview) and one.body.readonly for one in found)


@pytest.mark.parametrize("sizes", [(MAX_HEAD_BYTES + 1, 0), (0, MAX_BODY_BYTES + 1)])
def test_a_frame_that_is_too_long_is_neither_sent_nor_taken(sizes: tuple[int, int]) -> None:
    head_bytes, body_bytes = sizes
    with pytest.raises(ValueError, match="too long"):
        encode_frame(1, bytes(head_bytes), bytes(body_bytes))
    with pytest.raises(BrokenFrame):
        FramePlan.of(b"".join(size.to_bytes(4, "big") for size in (1, head_bytes, body_bytes)))


def test_a_frame_that_is_cut_off_is_broken() -> None:
    data = b"".join(encode_frame(1, b"head", b"body"))
    for size_bytes in range(1, len(data)):
        own, others = socket.socketpair()
        with own, others:
            others.sendall(data[:size_bytes])
            others.shutdown(socket.SHUT_WR)
            with pytest.raises(BrokenFrame):
                Channel(own).receive()


def test_an_end_between_two_frames_is_no_error() -> None:
    own, others = socket.socketpair()
    with own, others:
        Channel(others).send(1, b"head")
        others.shutdown(socket.SHUT_WR)
        channel = Channel(own)
        assert channel.receive() == ColdFrame(1, b"head", b"")
        assert channel.receive() is None


def test_frames_of_several_threads_do_not_mix() -> None:
    own, others = socket.socketpair()
    bodies = {number: bytes([number]) * 1_000_000 for number in range(8)}
    with own, others:
        channel = Channel(others)
        threads = [
            threading.Thread(target=channel.send, args=(number, b"h", body[:10], body[10:]))
            for number, body in bodies.items()
        ]
        for thread in threads:
            thread.start()
        receiver = Channel(own)
        found = {frame.number: frame.body for frame in (receiver.receive() for _ in bodies) if frame is not None}
        for thread in threads:
            thread.join()
    assert found == bodies
