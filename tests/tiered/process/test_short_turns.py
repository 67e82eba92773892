"""Short turns of a thread on a processor, asked of the system that runs the tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from millstream.tiered.process import short_turns
from millstream.tiered.process.short_turns import TURN_NS, ask_for_short_turns, turn_of_this_thread_ns

_T = TypeVar("_T")


def in_a_thread(work: Callable[[], _T]) -> _T:
    """What the work gives, done in a thread of its own: its turns are its own as well."""
    found: list[_T] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def needs_turns() -> None:
    if not in_a_thread(ask_for_short_turns):
        pytest.skip(f"this system ({os.uname().release}) grants no turns; Linux does since 6.12")


def test_a_thread_that_asks_has_short_turns_and_keeps_its_niceness() -> None:
    needs_turns()

    def ask() -> tuple[int | None, int]:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 3)
        ask_for_short_turns()
        return turn_of_this_thread_ns(), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    assert in_a_thread(ask) == (TURN_NS, 3)


def test_the_threads_that_it_starts_have_usual_turns() -> None:
    needs_turns()

    def ask() -> tuple[int | None, int | None]:
        ask_for_short_turns()
        return turn_of_this_thread_ns(), in_a_thread(turn_of_this_thread_ns)

    own, of_another = in_a_thread(ask)
    assert own == TURN_NS
    assert of_another != TURN_NS


def test_other_systems_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_turns, "_CALLS", {})
    assert in_a_thread(ask_for_short_turns) is False
    assert turn_of_this_thread_ns() is None


def test_a_thread_of_another_policy_is_left_as_it_is() -> None:
    def ask() -> tuple[bool, int]:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        return ask_for_short_turns(), os.sched_getscheduler(0)

    assert in_a_thread(ask) == (False, os.SCHED_BATCH)
