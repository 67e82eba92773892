"""A pull that needs no waiting is answered in its own turn, and reads records together."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker_bench import Bench
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.model.filter import parse_tag_filter
from millstream.model.operations import PullRequest
from millstream.store.queue_reader import QueueReader


def _none(*_: object) -> None:
    return None


async def test_records_read_together_are_those_read_one_by_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        await bench.send(f"{number}" * (number % 5 + 1), TAGS="red" if number % 3 else "blue")

    @settings(max_examples=scaled(200), deadline=None)
    @given(st.integers(-1, 41), st.integers(-1, 50), st.integers(0, 6000), st.sampled_from(("*", "red")))
    def both(queue_offset: int, max_messages: int, max_bytes: int, expression: str) -> None:
        wanted = parse_tag_filter(expression)
        request = PullRequest("g", "t", 0, queue_offset, max_messages, max_bytes, wanted)
        together = bench.broker.queues.pull_now(request)
        with monkeypatch.context() as patch:
            patch.setattr(QueueReader, "read_all", _none)
            assert together == bench.broker.queues.pull_now(request)

    both()


async def test_a_pull_that_has_to_wait_is_left_to_wait(bench: Bench) -> None:
    await bench.send("a")
    assert bench.broker.queues.pull_now(PullRequest("g", "t", 0, 1, wait_ms=10)) is None
    at_once = bench.broker.queues.pull_now(PullRequest("g", "t", 0, 1))
    assert at_once == await bench.broker.queues.pull(PullRequest("g", "t", 0, 1))
    found = bench.broker.queues.pull_now(PullRequest("g", "t", 0, 0, wait_ms=10))
    assert found == await bench.broker.queues.pull(PullRequest("g", "t", 0, 0, wait_ms=10))


async def test_damage_among_records_hides_the_damaged_one_alone(bench: Bench, damage: Callable[[int], None]) -> None:
    await bench.send("a", "b", "c")
    damage(2)
    result = bench.broker.queues.pull_now(PullRequest("g", "t", 0, 0))
    assert result is not None
    assert (len(result.records), result.next_offset) == (2, 3)
