"""Events of a job: bounded, in order, told once."""

from __future__ import annotations

from typing import Any

from millstream.streams.jobs.job_events import MAX_EVENTS, JobEvents, merge_events
from millstream.streams.jobs.tally import Tally
from millstream.streams.spark.source.position import Position


def words(events: JobEvents) -> list[tuple[str, str]]:
    return [(one.kind, one.words) for one in events.last()]


def report(batch: int, end: dict[str, int], latest: dict[str, int], cut_ms: int = 0) -> dict[str, Any]:
    return {
        "batchId": batch,
        "batchDuration": 10,
        "sources": [
            {
                "endOffset": Position(end, cut_ms, name="t").to_json(),
                "latestOffset": Position(latest, name="t").to_json(),
            }
        ],
    }


def test_the_last_events_stay_with_their_times_and_growing_numbers() -> None:
    events = JobEvents(clock_ms=iter(range(1_000)).__next__)
    for number in range(MAX_EVENTS + 5):
        events.note("restarted", str(number))
    found = events.last()
    assert len(found) == MAX_EVENTS
    assert (found[0].words, found[0].at_ms, found[-1].words) == ("5", 5, str(MAX_EVENTS + 4))
    assert [one.number for one in found] == sorted({one.number for one in found})


def test_events_of_queries_that_run_beside_each_other_come_in_their_order_and_once() -> None:
    one, two = JobEvents(), JobEvents()
    one.note("restarted", "a")
    two.note("restarted", "b")
    one.note("restarted", "c")
    assert [event.words for event in merge_events([one.last(), two.last(), one.last()])] == ["a", "b", "c"]


def test_a_server_that_is_away_is_told_once_and_so_is_its_return() -> None:
    events = JobEvents()
    events.note_back()
    for _ in range(3):
        events.note_away("The broker does not answer.")
    assert events.is_away
    events.note_back()
    events.note_back()
    assert [kind for kind, _ in words(events)] == ["server_away", "server_back"]


def test_starts_of_a_query_while_a_server_is_away_are_counted_and_not_told_one_by_one() -> None:
    tally = Tally({})
    tally.note_restart("The function failed.")
    tally.events.note_away("The broker does not answer.")
    for _ in range(3):
        tally.note_restart("The broker does not answer.")
    tally.note_checkpoint(77)
    found = tally.progress("running")
    assert (found.restarts, found.checkpoint_ms) == (4, 77)
    assert [event.kind for event in found.events] == ["restarted", "server_away", "server_back"]


def test_queues_that_come_and_go_are_told_by_their_names_and_not_those_of_the_beginning() -> None:
    four = {f"b/{number}": 0 for number in range(4)}
    eight = {f"b/{number}": 0 for number in range(8)}
    tally = Tally({"t": Position(four, name="t")})
    tally.absorb(report(0, {**four, "b/0": 3}, {**four, "b/0": 3}))
    assert tally.progress("running").events == ()
    tally.absorb(report(1, {**eight, "b/7": 3}, {**eight, "b/7": 3}))
    tally.absorb(report(2, {**eight, "b/7": 4}, {"b/7": 4}))
    added, removed = tally.progress("running").events
    assert (added.kind, added.words) == ("queue_added", "t: 4 queues, b/4, b/5, b/6, b/7; read from here on.")
    assert removed.kind == "queue_removed"
    assert "7 queues, b/0" in removed.words


def test_of_many_queues_some_are_named_and_the_others_counted() -> None:
    events = JobEvents()
    events.note_queues("t", {}, {f"b/{number}": 0 for number in range(20)})
    ((_, said),) = words(events)
    assert said.startswith("t: 20 queues, b/0, b/1, b/10")
    assert "and 12 more" in said


def test_lag_in_time_is_known_while_rows_wait_behind_a_cut_by_store_time() -> None:
    tally = Tally({"t": Position({"b/0": 0}, name="t")})
    tally.absorb(report(0, {"b/0": 3}, {"b/0": 9}, cut_ms=5_000))
    assert tally.progress("running").read_to_ms == 5_000
    tally.absorb(report(1, {"b/0": 9}, {"b/0": 9}))
    found = tally.progress("running")
    assert (found.behind, found.read_to_ms) == (0, None)
