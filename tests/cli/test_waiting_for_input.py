"""Waiting for input: it ends with input, and with a signal that came just before the system began to wait."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator

import pytest

from millstream.cli.printer import wait_for_input


class BegunError(Exception):
    """Ends a wait that a signal ended."""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    readable, writable = os.pipe()
    yield readable, writable
    os.close(readable)
    os.close(writable)


def test_input_ends_the_waiting_and_is_left_to_be_read(pipe: tuple[int, int]) -> None:
    readable, writable = pipe
    os.write(writable, b"x")
    wait_for_input(readable)
    assert os.read(readable, 10) == b"x"
    assert signal.set_wakeup_fd(-1) == -1


def test_a_signal_that_comes_just_before_the_system_waits_ends_the_waiting(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ready: list[list[int]] = []

    def beginning(*descriptors: list[int]) -> None:
        signal.raise_signal(signal.SIGINT)
        ready.append(waiting(*descriptors, 10.0)[0])
        raise BegunError

    waiting = select.select
    monkeypatch.setattr(select, "select", beginning)
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        with pytest.raises(BegunError):
            wait_for_input(pipe[0])
    finally:
        signal.signal(signal.SIGINT, before)
    assert [len(some) for some in ready] == [1]
    assert pipe[0] not in ready[0]
