"""Histories of queues: what a correct queue shows is accepted, and each planted fault is found and named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from random import Random

import pytest
from crash.history import Event, Kind
from crash.queue_linearizability import LogEntry, QueueLog, check_queues
from hypothesis import given
from hypothesis import strategies as st
from modelled_histories import QUEUE, QueueModel
from msgspec.structs import replace

Logs = dict[str, QueueLog]
Entries = list[LogEntry]

SEEDS = st.integers(0, 2**32)


@given(SEEDS, st.integers(0, 150))
def test_what_a_correct_queue_shows_is_accepted(seed: int, operations: int) -> None:
    model = QueueModel(Random(seed), operations)
    verdict = check_queues(model.events, model.logs)
    assert verdict.broken() == []
    assert verdict.acknowledged >= 4
    assert verdict.reads >= 1


def _edit(logs: Logs, change: Callable[[Entries], object]) -> Logs:
    entries = list(logs[QUEUE].entries)
    change(entries)
    return {**logs, QUEUE: QueueLog(entries)}


def _renumbered(names: Entries) -> Entries:
    return [entry._replace(queue_offset=offset) for offset, entry in enumerate(names)]


def _edit_event(events: Sequence[Event], message: str, kind: Kind, **fields: object) -> list[Event]:
    assert sum((event.message, event.kind) == (message, kind) for event in events) == 1
    return [replace(event, **fields) if (event.message, event.kind) == (message, kind) else event for event in events]


def _offset(logs: Logs, message: str) -> int:
    return next(entry.queue_offset for entry in logs[QUEUE].entries if entry.message == message)


def _drop(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    del events[-2:]
    return events, _edit(logs, list.pop)


def _drop_and_close_up(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    left = [entry for entry in logs[QUEUE].entries if entry.message != "quiet-1"]
    return events, {**logs, QUEUE: QueueLog(_renumbered(left))}


def _drop_in_the_middle(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    return events, _edit(logs, lambda entries: entries.pop(_offset(logs, "quiet-1")))


def _swap_in_the_log(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    def swap(entries: Entries) -> None:
        entries[-1], entries[-2] = entries[-2], entries[-1]
        entries[:] = _renumbered(entries)

    return events, _edit(logs, swap)


def _swap_everywhere(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    last = _offset(logs, "quiet-3")
    events = _edit_event(events, "quiet-3", "ok", queue_offset=last - 1)
    return _swap_in_the_log(_edit_event(events, "quiet-2", "ok", queue_offset=last), logs)


def _change_a_body(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    return events, _edit(logs, lambda entries: entries.append(entries.pop()._replace(checksum=7)))


def _pull(events: list[Event], logs: Logs, *found: LogEntry, begin: int = -1, max_offset: int = -1) -> list[Event]:
    """The events, and behind them a pull of its own."""
    at_s = max(event.at_s for event in events) + 1
    begin = found[0].queue_offset if begin < 0 else begin
    brought = [
        Event(
            at_s=at_s + 1,
            kind="delivered",
            message=one.message,
            checksum=one.checksum,
            queue=QUEUE,
            queue_offset=one.queue_offset,
            read_id="pull",
        )
        for one in found
    ]
    end = logs[QUEUE].max_offset if max_offset < 0 else max_offset
    return [
        *events,
        Event(at_s=at_s, kind="reading", message="pull", queue=QUEUE, queue_offset=begin),
        *brought,
        Event(at_s=at_s + 1, kind="read", message="pull", queue_offset=end),
    ]


def _pull_another_body(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    return _pull(events, logs, logs[QUEUE].entries[-1]._replace(checksum=7)), logs


def _duplicate(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    def append(entries: Entries) -> None:
        entries.append(entries[-2]._replace(queue_offset=len(entries)))

    return events, _edit(logs, append)


def _invent(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    return events, _edit(logs, lambda entries: entries.append(LogEntry(len(entries), "nobody", 1)))


def _store_what_was_refused(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    end_s = max(event.at_s for event in events)
    events += [Event(at_s=end_s + 1, kind="invoke", message="no"), Event(at_s=end_s + 2, kind="fail", message="no")]
    return events, _edit(logs, lambda entries: entries.append(LogEntry(len(entries), "no", 0)))


def _store_in_another_queue(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    return _edit_event(events, "quiet-2", "invoke", queue="elsewhere"), logs


def _read_too_little(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    return _edit_event(events, "quiet-read", "read", queue_offset=_offset(logs, "quiet-3")), logs


def _pull_nothing(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    return _pull(events, logs, begin=_offset(logs, "quiet-3")), logs


def _pull_over_one(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    first, _, third = logs[QUEUE].entries[-3:]
    return _pull(events, logs, first, third), logs


def _read_less_than_before(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    """Of a message whose sender had no answer, and which a reader saw."""
    events = [event for event in events if (event.message, event.kind) != ("quiet-3", "ok")]
    return _pull(events, logs, begin=_offset(logs, "quiet-3"), max_offset=_offset(logs, "quiet-3")), logs


def _read_too_much(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    return _edit_event(events, "quiet-read", "read", queue_offset=logs[QUEUE].max_offset + 1), logs


def _lose_what_was_read(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    gone = logs[QUEUE].entries[-1]
    pulled = _pull(events[:-2], logs, gone, max_offset=gone.queue_offset)
    events = [event for event in pulled if (event.message, event.kind) != ("quiet-3", "ok")]
    return events, _edit(logs, list.pop)


def _see_before_it_is_sent(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    sent = next(event for event in events if (event.message, event.kind) == ("quiet-3", "invoke"))
    begun = Event(at_s=sent.at_s - 5, kind="reading", message="early", queue=QUEUE)
    return [
        *events, begun, Event(at_s=sent.at_s - 4, kind="read", message="early", queue_offset=logs[QUEUE].max_offset)
    ], logs  # fmt: skip


def _give_an_offset_twice(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    return _edit_event(events, "quiet-1", "ok", queue_offset=_offset(logs, "quiet-2")), logs


def _overwrite(events: list[Event], logs: Logs) -> tuple[list[Event], Logs]:
    end_s = max(event.at_s for event in events)
    events.append(Event(at_s=end_s + 1, kind="invoke", message="new", checksum=3))
    return events, _edit(logs, lambda entries: entries.append(LogEntry(entries.pop().queue_offset, "new", 3)))


MUTATIONS = [
    (_drop, "lost"),
    (_drop_and_close_up, "lost"),
    (_drop_in_the_middle, "lost"),
    (_drop_in_the_middle, "holes"),
    (_lose_what_was_read, "lost"),
    (_read_too_much, "lost"),
    (_swap_in_the_log, "reordered"),
    (_swap_everywhere, "reordered"),
    (_see_before_it_is_sent, "reordered"),
    (_change_a_body, "altered"),
    (_pull_another_body, "altered"),
    (_duplicate, "duplicated"),
    (_invent, "phantom"),
    (_store_what_was_refused, "phantom"),
    (_store_in_another_queue, "phantom"),
    (_read_too_little, "stale_reads"),
    (_pull_nothing, "stale_reads"),
    (_pull_over_one, "stale_reads"),
    (_read_less_than_before, "stale_reads"),
    (_give_an_offset_twice, "double_offsets"),
    (_overwrite, "double_offsets"),
    (_overwrite, "lost"),
]


@pytest.mark.parametrize(("plant", "kind"), MUTATIONS)
@given(seed=SEEDS, operations=st.integers(0, 60))
def test_each_planted_fault_is_refused_and_named(
    plant: Callable[[list[Event], Logs], tuple[list[Event], Logs]], kind: str, seed: int, operations: int
) -> None:
    model = QueueModel(Random(seed), operations)
    verdict = check_queues(*plant(model.events, model.logs))
    assert getattr(verdict, kind)
    assert any(line.startswith(kind.replace("_", " ")) for line in verdict.broken())


def test_a_message_elsewhere_than_was_answered_is_reordered_even_beside_one_under_way_with_it() -> None:
    events = [Event(at_s=at_s, kind="invoke", message=name) for at_s, name in enumerate("ab")]
    events += [
        Event(at_s=9, kind="ok", message=name, queue=QUEUE, queue_offset=offset) for offset, name in enumerate("ab")
    ]
    logs = {QUEUE: QueueLog([LogEntry(0, "b", 0), LogEntry(1, "a", 0)])}
    assert check_queues(events, logs).reordered == [
        f"a: answered 0 of {QUEUE}, is at 1 of {QUEUE}",
        f"b: answered 1 of {QUEUE}, is at 0 of {QUEUE}",
    ]


def test_what_retention_removed_is_not_lost() -> None:
    model = QueueModel(Random(3), 40)
    kept = model.logs[QUEUE].entries[-2:]
    logs = {QUEUE: QueueLog(kept, kept[0].queue_offset)}
    assert check_queues(model.events, logs).broken() == []


def test_queues_without_a_log_are_passed_over() -> None:
    model = QueueModel(Random(4), 40)
    verdict = check_queues(model.events, {QUEUE: model.logs[QUEUE]})
    assert verdict.broken() == []
    assert verdict.acknowledged < check_queues(model.events, model.logs).acknowledged


def test_a_queue_that_lost_everything_has_lost_everything() -> None:
    model = QueueModel(Random(5), 0)
    verdict = check_queues(model.events, {QUEUE: QueueLog(())})
    assert [words.split()[0] for words in verdict.lost[:4]] == ["quiet-0", "quiet-1", "quiet-2", "quiet-3"]


def test_reads_may_be_behind_at_a_replica_and_for_the_lease_of_a_former_master() -> None:
    model = QueueModel(Random(6), 20)
    events, logs = _read_too_little(model.events, model.logs)
    assert check_queues(events, logs).stale_reads
    assert not check_queues(_edit_event(events, "quiet-read", "reading", broker_id=2), logs).broken()
    assert not check_queues(events, logs, max_stale_s=1_000).broken()


def _tiny_history(choose: Random) -> tuple[list[Event], QueueLog]:
    """Up to three sends and three reads at random times that need not fit to anything."""
    names = [f"m{number}" for number in range(choose.randint(1, 3))]
    times = iter(choose.sample(range(100), 20))
    events: list[Event] = []
    for offset, name in enumerate(names):
        called_s, answered_s = sorted((next(times), next(times)))
        events.append(Event(at_s=called_s, kind="invoke", message=name))
        if choose.random() < 0.8:
            events.append(Event(at_s=answered_s, kind="ok", message=name, queue=QUEUE, queue_offset=offset))
    for number in range(choose.randint(0, 3)):
        called_s, answered_s = sorted((next(times), next(times)))
        events.append(Event(at_s=called_s, kind="reading", message=f"r{number}", queue=QUEUE))
        seen = choose.randint(0, len(names))
        events.append(Event(at_s=answered_s, kind="read", message=f"r{number}", queue_offset=seen))
    return events, QueueLog([LogEntry(offset, name, 0) for offset, name in enumerate(names)])


def _fits(order: Sequence[Event], ends: dict[str, Event]) -> bool:
    """Whether a queue that does one after the other answers as was answered, in an order that real time allows."""
    length, latest_call_s = 0, float("-inf")
    for called in order:
        end = ends.get(called.message)
        latest_call_s = max(latest_call_s, called.at_s)
        if end is not None and end.at_s < latest_call_s:
            return False
        if called.kind == "reading":
            if end is not None and end.queue_offset != length:
                return False
        elif called.message != f"m{length}":
            return False
        else:
            length += 1
    return True


def _orders(events: Sequence[Event]) -> Iterator[tuple[Event, ...]]:
    return permutations(event for event in events if event.kind in ("invoke", "reading"))


@given(SEEDS)
def test_the_verdict_is_that_of_trying_all_orders(seed: int) -> None:
    for number in range(20):
        events, log = _tiny_history(Random(seed + number))
        ends = {event.message: event for event in events if event.kind in ("ok", "read")}
        has_order = any(_fits(order, ends) for order in _orders(events))
        assert (check_queues(events, {QUEUE: log}).broken() == []) == has_order


def test_a_log_ends_behind_its_last_entry_and_an_empty_one_where_it_begins() -> None:
    assert QueueLog((), min_offset=5).max_offset == 5
    assert QueueLog((LogEntry(7, "m", 0),), min_offset=7).max_offset == 8
