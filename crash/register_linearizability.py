"""Looks for one order of all reads and changes of a register, by the search of Wing, Gong and Lowe.

A register has an epoch, which grows with each change, and a value: a set that the controllers hold, for one. Three
things are done to it: a read; an alteration, which expects an epoch and makes the next one; an election, which makes a
later epoch whatever the present one is. The sum of a set's master epoch and its set epoch is such an epoch.

Sources: Wing and Gong, Testing and verifying concurrent objects (1993); Lowe, Testing for linearizability (2017), for
the memory of what was tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Final, NamedTuple

from crash.checker import describe_broken
from crash.history import Event

__all__ = ["MAX_OPERATIONS", "RegisterValue", "RegisterVerdict", "check_register"]

MAX_OPERATIONS: Final = 10_000
"""Operations of one register at most: the memory of what was tried takes some kilobytes for each."""


class RegisterValue(NamedTuple):
    """What a register holds."""

    epoch: int
    value: str


@dataclass
class RegisterVerdict:
    """Why there is no order; all lists are empty if there is one. What cannot be ordered is found one at a time."""

    lost_changes: list[str] = field(default_factory=list)
    """Changes that were answered and are overwritten, or that follow from what was no more."""
    stale_reads: list[str] = field(default_factory=list)
    """Reads of what was over before they began."""
    unexplained_reads: list[str] = field(default_factory=list)
    """Reads of what nobody had asked for by then."""
    wrong_refusals: list[str] = field(default_factory=list)
    """Alterations that were fenced although they expected the epoch that was there."""

    def broken(self) -> list[str]:
        """One line for each kind of broken promise."""
        return describe_broken(vars(self))


@dataclass(frozen=True, slots=True)
class _Operation:
    name: str
    answer: str
    """`read`, `changed` or `fenced`; `unknown` of a change without an answer."""
    expected: int
    """The epoch that a change expects; -1: it is an election."""
    after: RegisterValue | None
    """What was read, or what the register became; None for an election of which nobody knows."""
    called_s: float
    returned_s: float

    @property
    def is_open_election(self) -> bool:
        """Whether it is an election of which nobody knows what it made, if anything."""
        return self.answer == "unknown" and self.expected < 0

    @property
    def latest_epoch(self) -> float:
        """The highest epoch that the register may have before it: epochs never go back."""
        if self.answer == "fenced" or self.after is None:
            return inf
        return self.after.epoch - (self.answer != "read")


def check_register(events: Sequence[Event], register: str, initial: RegisterValue) -> RegisterVerdict:
    """The verdict over one register. Raises ValueError beyond MAX_OPERATIONS.

    Refused changes and reads without an answer say nothing. An election that the controllers may hold on their own is
    a `change` without epoch and without an answer: it may have made any value that was seen and that nobody else made.
    """
    operations = list(_list_operations(events, register))
    if len(operations) > MAX_OPERATIONS:
        raise ValueError(f"{len(operations)} operations of {register} are more than {MAX_OPERATIONS}; check a part.")
    verdict = RegisterVerdict()
    made: dict[int, str] = {}
    for one in operations:
        if one.answer == "changed" and one.after is not None:
            other = made.setdefault(one.after.epoch, one.name)
            if other != one.name:
                verdict.lost_changes.append(f"{other} and {one.name} both made epoch {one.after.epoch}")
    if not verdict.lost_changes and (stuck := _Search(operations, initial).find_stuck()):
        _name_stuck(*stuck, verdict)
    return verdict


def _name_stuck(operation: _Operation, state: RegisterValue, verdict: RegisterVerdict) -> None:
    told = f"expecting epoch {operation.expected}" if operation.after is None else f"with {operation.after}"
    words = f"{operation.name} {told}, when there was {state}"
    if operation.answer == "fenced":
        verdict.wrong_refusals.append(words)
    elif operation.answer == "changed":
        verdict.lost_changes.append(words)
    elif operation.after is not None and operation.after.epoch < state.epoch:
        verdict.stale_reads.append(words)
    else:
        verdict.unexplained_reads.append(words)


def _list_operations(events: Sequence[Event], register: str) -> Iterator[_Operation]:
    answers = {event.message: event for event in events if event.kind in ("read", "changed", "fenced", "refused")}
    for began in events:
        if began.kind not in ("reading", "change") or began.register != register:
            continue
        answer, name = answers.get(began.message), began.message
        if answer is not None and answer.kind != "refused":
            after = None if answer.kind == "fenced" else RegisterValue(answer.epoch, answer.value)
            yield _Operation(name, answer.kind, began.epoch, after, began.at_s, answer.at_s)
        elif answer is None and began.kind == "change":
            after = None if began.epoch < 0 else RegisterValue(began.epoch + 1, began.value)
            yield _Operation(name, "unknown", began.epoch, after, began.at_s, inf)


class _Search:
    """Depth first over the calls before the first answer that is left, as a linked list of calls and answers.

    Changes without an answer are no part of the list, and are tried only where nothing in it fits.
    """

    def __init__(self, operations: Sequence[_Operation], initial: RegisterValue) -> None:
        self._operations = sorted(operations, key=lambda one: one.called_s)
        self._state = initial
        self._unmade = _list_unmade(operations, initial)
        self._open: dict[int, list[int]] = {}
        for i, one in enumerate(self._operations):
            if one.answer == "unknown":
                self._open.setdefault(one.expected, []).append(i)
        size = len(operations)
        # Entry i is the call of operation i, entry i + size its answer; the last one is both ends of the list.
        answered = [(i, one) for i, one in enumerate(self._operations) if one.answer != "unknown"]
        times = [(one.called_s, i) for i, one in answered] + [(one.returned_s, i + size) for i, one in answered]
        self._end = 2 * size
        order = [self._end, *(entry for _, entry in sorted(times)), self._end]
        self._next, self._previous = [self._end] * (self._end + 1), [self._end] * (self._end + 1)
        for before, after in pairwise(order):
            self._next[before], self._previous[after] = after, before
        self._limit = inf  # behind it, the first answer that is left could not come any more
        # An alteration without an answer needs no bit: the epoch shows whether it can come. Elections are a count.
        self._placed = self._elections = 0
        self._tried: dict[tuple[int, RegisterValue], int] = {}
        self._path: list[tuple[int, RegisterValue, bool]] = []

    def find_stuck(self) -> tuple[_Operation, RegisterValue] | None:
        """None if there is an order; else the first operation that fits nowhere in the longest one, and what was there.

        An operation that changes nothing is placed as soon as it fits: later would be as good, so that no other place
        is tried.
        """
        entry, longest = self._next[self._end], -1
        stuck: tuple[_Operation, RegisterValue] | None = None
        while entry != self._end:
            if entry < len(self._operations):
                entry = self._next[self._end] if self._place(entry) else self._next[entry]
                continue
            waiting = self._operations[entry - len(self._operations)]
            if len(self._path) > longest:
                longest, stuck = len(self._path), (waiting, self._state)
            self._limit = waiting.latest_epoch
            if not self._place_open(waiting.returned_s) and not self._take_back():
                return stuck
            entry = self._next[self._end]
        return None

    def _place_open(self, before_s: float) -> bool:
        """Place a change without an answer. Of elections, which are all alike, only the first one that is left."""
        elections = self._open.get(-1, [])[self._elections : self._elections + 1]
        found = self._open.get(self._state.epoch, []) + elections
        return any(self._operations[i].called_s <= before_s and self._place(i) for i in found)

    def _place(self, index: int) -> bool:
        """Place an operation with a result not yet tried; the fewer elections were needed so far, the better."""
        one = self._operations[index]
        placed = self._placed | (0 if one.answer == "unknown" else 1 << index)
        elections = self._elections + one.is_open_election
        for after in self._find_results(one):
            is_change = after != self._state
            if is_change and self._tried.get((placed, after), inf) <= elections:
                continue
            if is_change:
                self._tried[placed, after] = elections
            self._path.append((index, self._state, is_change))
            self._placed, self._state, self._elections = placed, after, elections
            self._unlink(index)
            return True
        return False

    def _find_results(self, one: _Operation) -> Sequence[RegisterValue]:
        """What the register may become by an operation; nothing if it does not fit now."""
        state, after = self._state, one.after
        if one.answer == "read":
            fits = after == state
        elif one.answer == "fenced":
            fits, after = one.expected != state.epoch, state
        else:
            fits = one.expected in (-1, state.epoch)
        found = [after] if after is not None else self._unmade
        if one.answer in ("changed", "unknown"):
            limit = self._limit if one.answer == "unknown" else inf
            found = [value for value in found if state.epoch < value.epoch <= limit]
        return found if fits else []

    def _take_back(self) -> bool:
        """Undo until the last change, whose place and result are not tried again; False if nothing is left to try."""
        while self._path:
            index, self._state, is_change = self._path.pop()
            self._placed &= ~(1 << index)
            self._elections -= self._operations[index].is_open_election
            self._link(index)
            if is_change:
                return True
        return False

    def _unlink(self, index: int) -> None:
        for entry in self._entries(index):
            self._next[self._previous[entry]] = self._next[entry]
            self._previous[self._next[entry]] = self._previous[entry]

    def _link(self, index: int) -> None:
        for entry in reversed(self._entries(index)):
            self._next[self._previous[entry]] = self._previous[self._next[entry]] = entry

    def _entries(self, index: int) -> tuple[int, ...]:
        is_open = self._operations[index].answer == "unknown"
        return () if is_open else (index, index + len(self._operations))


def _list_unmade(operations: Sequence[_Operation], initial: RegisterValue) -> list[RegisterValue]:
    """What elections without an answer may have made: all that was read, altered or in the way, and made by nobody."""
    shown = {one.after for one in operations if one.after is not None and one.answer in ("read", "changed")}
    known = {epoch for epoch, _ in shown} | {initial.epoch}
    hinted = {one.expected + (one.answer == "fenced") for one in operations if one.expected >= 0}
    made = {one.after for one in operations if one.answer in ("changed", "unknown")}
    return sorted((shown - made) | {RegisterValue(epoch, "") for epoch in hinted - known})
