"""Asks the system for short turns of a thread on a processor, so that it waits less for the next one.

Linux 6.12 and later hand out processors by deadlines (EEVDF), and a thread says itself how long its turns are. One with
short turns takes the processor from one with long turns as soon as it is woken up, if it has had no more than its
share; otherwise it waits until the next tick of the clock, 4 ms with 250 of them a second. Its share stays what it is.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from typing import Final

__all__ = ["TURN_NS", "ask_for_short_turns", "turn_of_this_thread_ns"]

TURN_NS: Final = 100_000
"""Nanoseconds of a turn, the shortest that Linux grants; usual are 2,800,000 or less, by the number of processors."""

_CALLS: Final = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""Numbers of the system calls sched_setattr and sched_getattr (Linux: arch/x86/entry/syscalls/syscall_64.tbl,
include/uapi/asm-generic/unistd.h); C libraries have had names for them since 2025 alone."""

_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")
"""struct sched_attr (include/uapi/linux/sched/types.h): size, policy, flags, nice, priority, runtime and two more."""

_RESET_ON_FORK: Final = 1
"""SCHED_FLAG_RESET_ON_FORK: threads and processes that this one starts have usual turns."""


def ask_for_short_turns() -> bool:
    """Whether the system took the wish of the thread that calls. Older systems and others change nothing."""
    if not _is_offered() or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    wish = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, _RESET_ON_FORK, niceness, 0, TURN_NS, 0, 0)
    set_attributes, _ = _CALLS[platform.machine()]
    failed: int = ctypes.CDLL(None).syscall(set_attributes, 0, ctypes.create_string_buffer(wish, len(wish)), 0)
    return not failed and turn_of_this_thread_ns() == TURN_NS


def turn_of_this_thread_ns() -> int | None:
    """How long a turn of the thread that calls is; None where the system does not tell."""
    if not _is_offered():
        return None
    found = ctypes.create_string_buffer(_ATTRIBUTES.size)
    _, get_attributes = _CALLS[platform.machine()]
    if ctypes.CDLL(None).syscall(get_attributes, 0, found, _ATTRIBUTES.size, 0):
        return None
    turn_ns: int = _ATTRIBUTES.unpack(found.raw)[5]
    return turn_ns or None


def _is_offered() -> bool:
    return sys.platform == "linux" and platform.machine() in _CALLS
