"""Holds a history against what is promised: lost, altered, reordered, phantom, early, stuck, offsets, duplicates."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crash.history import Event

__all__ = ["EARLY_TOLERANCE_S", "Verdict", "check_history", "describe_broken"]

EARLY_TOLERANCE_S = 0.1
"""How long before its due time a message may be delivered: two clocks round differently."""


@dataclass
class Verdict:
    """What a history shows. The lists name messages, lanes or faults; all but the figures must be empty.

    `recovery_s` holds for each fault the time from the fault to the next message that was stored.
    """

    lost: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    phantom: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    offset_regressions: list[str] = field(default_factory=list)
    acknowledged: int = 0
    unknown: int = 0
    deliveries: int = 0
    duplicates: int = 0
    recovery_s: list[float] = field(default_factory=list)

    def broken(self) -> list[str]:
        """One line for each kind of broken promise."""
        kinds = ("lost", "altered", "reordered", "phantom", "early", "stuck", "offset_regressions")
        return describe_broken({kind: getattr(self, kind) for kind in kinds})


def describe_broken(found: Mapping[str, Sequence[str]]) -> list[str]:
    """One line for each kind of which something was found: how many and the first three."""
    return [f"{kind.replace('_', ' ')}: {len(names)}, first {names[:3]}" for kind, names in found.items() if names]


@dataclass(slots=True)
class _Message:
    invoked: Event
    answered: Event | None = None
    first_delivery_s: float | None = None


def check_history(events: Sequence[Event], *, stuck_after_s: float = 10.0, is_drained: bool = True) -> Verdict:
    """The verdict over events in the order of time.

    `is_drained` says that consumers read until nothing came any more: without it nothing can count as lost. A message
    with an unknown outcome counts neither as lost nor as extra, and is left out of the order.
    """
    verdict, messages = Verdict(), {}
    for event in events:
        if event.kind == "invoke":
            messages[event.message] = _Message(event)
    for event in events:
        if event.kind in ("ok", "fail", "unknown"):
            messages[event.message].answered = event
    _check_deliveries(events, messages, verdict)
    for name, message in messages.items():
        answer = "unknown" if message.answered is None else message.answered.kind
        verdict.unknown += answer == "unknown"
        if answer == "ok":
            verdict.acknowledged += 1
            if is_drained and message.first_delivery_s is None:
                verdict.lost.append(name)
        elif answer == "fail" and message.first_delivery_s is not None:
            verdict.phantom.append(name)
    stored = [message for message in messages.values() if message.answered and message.answered.kind == "ok"]
    _check_order(stored, verdict)
    _check_offsets(stored, verdict)
    _check_progress(events, verdict, stuck_after_s)
    return verdict


def _check_deliveries(events: Sequence[Event], messages: dict[str, _Message], verdict: Verdict) -> None:
    for event in events:
        if event.kind != "delivered":
            continue
        verdict.deliveries += 1
        message = messages.get(event.message)
        if message is None:
            verdict.phantom.append(event.message)
            continue
        if message.first_delivery_s is None:
            message.first_delivery_s = event.at_s
        else:
            verdict.duplicates += 1
        if event.checksum != message.invoked.checksum:
            verdict.altered.append(event.message)
        if event.at_s < message.invoked.due_s - EARLY_TOLERANCE_S:
            verdict.early.append(event.message)


def _check_order(stored: list[_Message], verdict: Verdict) -> None:
    """A message whose answer came before another one of its lane was sent must be delivered first before that one."""
    lanes: dict[str, list[_Message]] = {}
    for message in stored:
        if message.invoked.lane and message.first_delivery_s is not None:
            lanes.setdefault(message.invoked.lane, []).append(message)
    for lane, among in lanes.items():
        running: list[tuple[float, float]] = []
        latest_s = float("-inf")
        for message in sorted(among, key=lambda message: message.invoked.at_s):
            while running and running[0][0] < message.invoked.at_s:
                latest_s = max(latest_s, heapq.heappop(running)[1])
            assert message.first_delivery_s is not None
            assert message.answered is not None
            if latest_s > message.first_delivery_s:
                verdict.reordered.append(f"{message.invoked.message} of {lane}")
            heapq.heappush(running, (message.answered.at_s, message.first_delivery_s))


def _check_offsets(stored: list[_Message], verdict: Verdict) -> None:
    """Two messages never share an offset, and a later one never gets a smaller offset than one answered before."""
    queues: dict[str, list[_Message]] = {}
    for message in stored:
        assert message.answered is not None
        if message.answered.queue_offset >= 0:
            queues.setdefault(message.answered.queue, []).append(message)
    for queue, among in queues.items():
        running: list[tuple[float, int]] = []
        taken: set[int] = set()
        highest = -1
        for message in sorted(among, key=lambda message: message.invoked.at_s):
            assert message.answered is not None
            queue_offset = message.answered.queue_offset
            while running and running[0][0] < message.invoked.at_s:
                highest = max(highest, heapq.heappop(running)[1])
            if queue_offset < highest or queue_offset in taken:
                verdict.offset_regressions.append(f"{message.invoked.message} at {queue_offset} of {queue}")
            taken.add(queue_offset)
            heapq.heappush(running, (message.answered.at_s, queue_offset))


def _check_progress(events: Sequence[Event], verdict: Verdict, stuck_after_s: float) -> None:
    """After each fault something must be stored again: at once counts from the fault, stuck from its healing."""
    begun: Event | None = None
    healed: Event | None = None
    has_tried = False
    for event in events:
        if event.kind == "fault":
            begun, healed, has_tried = event, None, False
        elif event.kind == "healed":
            healed = event
        elif begun is not None and event.kind == "ok":
            verdict.recovery_s.append(event.at_s - begun.at_s)
            begun = None
        has_tried = has_tried or event.kind == "invoke"
        if begun is not None and healed is not None and has_tried and event.at_s - healed.at_s > stuck_after_s:
            verdict.stuck.append(f"{begun.message} at {begun.at_s:.3f} s")
            begun = None
