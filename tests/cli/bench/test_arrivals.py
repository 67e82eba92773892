"""The book of what has arrived."""

from __future__ import annotations

from millstream.cli.bench.run import MARK_BYTES, Arrivals


def test_a_message_is_timed_from_the_moment_it_was_due() -> None:
    arrivals = Arrivals(MARK_BYTES)
    body = arrivals.body(0, 10.0)
    arrivals.note(body, 10.5, 0.0)
    assert (arrivals.latency.max_ms, arrivals.delivered, arrivals.missing) == (500.0, 1, 0)


def test_what_comes_twice_or_not_at_all_is_told() -> None:
    arrivals = Arrivals(100)
    bodies = [arrivals.body(number, 0.0) for number in range(3)]
    assert {len(body) for body in bodies} == {100}
    for number in range(3):
        arrivals.note_sent(number)
    for body in (bodies[0], bodies[0], bodies[2]):
        arrivals.note(body, 1.0, 0.0)
    assert (arrivals.delivered, arrivals.missing, arrivals.duplicates) == (2, 1, 1)


def test_a_message_may_arrive_before_its_send_is_answered() -> None:
    arrivals = Arrivals(MARK_BYTES)
    arrivals.note(arrivals.body(0, 0.0), 1.0, 0.0)
    arrivals.note_sent(0)
    assert arrivals.missing == 0


def test_strangers_and_the_warm_up_are_not_timed() -> None:
    arrivals, others = Arrivals(MARK_BYTES), Arrivals(MARK_BYTES)
    arrivals.note(others.body(0, 0.0), 1.0, 0.0)
    arrivals.note(b"", 1.0, 0.0)
    assert arrivals.delivered == 0
    arrivals.note(arrivals.body(0, 0.9), 2.0, 1.0)
    assert (arrivals.delivered, arrivals.latency.count) == (1, 0)


async def test_waiting_ends_when_the_last_one_comes() -> None:
    arrivals = Arrivals(MARK_BYTES)
    body = arrivals.body(0, 0.0)
    arrivals.note_sent(0)
    arrivals.note(body, 1.0, 0.0)
    await arrivals.wait_for_all()
