"""Which rows share a batch, and when it goes."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="needs the extra bulk")

from hypothesis import given
from hypothesis import strategies as st

from millstream.client.bulk.encoding import GatherLimits
from millstream.client.bulk.open_batches import OpenBatch, OpenBatches
from millstream.client.values import QueueAddress
from millstream.model.errors import NameRefused, Unreachable

HOLD_S = 2.0
LIMITS = GatherLimits(rows=3, batch_bytes=1000, hold_s=HOLD_S, waiting_bytes=10)


class Gathering:
    """Open batches over a clock of the test's own; each batch's receipts are its number."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.made = 0
        self.batches = OpenBatches(LIMITS, self._make_receipts, lambda: self.now_s)

    def _make_receipts(self) -> int:
        self.made += 1
        return self.made

    def add(self, topic: str, body: bytes = b"x", size: int = 1) -> tuple[OpenBatch[int], int]:
        return self.batches.add(topic, body, None, None, None, size)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["add", "take", "all", "due", "wait"]))))
def test_every_row_is_taken_once_in_the_order_of_its_topic_and_none_late(steps: list[tuple[str, str]]) -> None:
    gathering, number = Gathering(), 0
    batches = gathering.batches
    added: dict[str, list[bytes]] = {"a": [], "b": []}
    taken: dict[str, list[bytes]] = {"a": [], "b": []}

    def take(found: list[OpenBatch[int]]) -> None:
        for batch in found:
            taken[batch.rows.topic] += batch.rows.bodies
            batches.release(batch.rows.size_bytes)

    for topic, step in steps:
        if step == "add":
            number += 1
            batch, row = gathering.add(topic, b"%d" % number)
            added[topic].append(batch.rows.bodies[row])
        elif step == "take" and topic in batches.topics:
            take([batches.take(topic)])
        elif step == "all":
            take(batches.take_all())
        elif step == "due":
            take(batches.take_due())
            left_s = batches.until_due_s()
            assert left_s is None or 0 < left_s <= HOLD_S
        elif step == "wait":
            gathering.now_s += 0.7
        assert batches.waiting_bytes == sum(map(len, added.values())) - sum(map(len, taken.values()))
    take(batches.take_all())
    assert taken == added
    assert batches.topics == []
    assert batches.until_due_s() is None


def test_a_batch_is_due_from_its_first_row_on_whatever_is_added() -> None:
    gathering = Gathering()
    first, _ = gathering.add("a")
    gathering.now_s = HOLD_S / 2
    assert gathering.add("a") == (first, 1)
    gathering.add("b")
    assert gathering.batches.until_due_s() == HOLD_S / 2
    gathering.now_s = HOLD_S
    assert gathering.batches.take_due() == [first]
    assert gathering.batches.topics == ["b"]


def test_one_row_may_go_beyond_the_room_where_nothing_else_waits() -> None:
    batches = Gathering().batches
    assert batches.has_room(11)
    batches.reserve(9)
    assert batches.has_room(1)
    assert not batches.has_room(2)
    batches.release(9)
    assert batches.has_room(11)


def test_the_first_failure_is_raised_once() -> None:
    batches = Gathering().batches
    batches.raise_failure()
    batches.fail(Unreachable("first"))
    batches.fail(Unreachable("second"))
    with pytest.raises(Unreachable, match="first"):
        batches.raise_failure()
    batches.raise_failure()


def test_queues_are_taken_in_turn() -> None:
    batches = Gathering().batches
    queues = [QueueAddress("t", "b", number, "h:1") for number in range(3)]
    assert {batches.choose_queue("t", queues).queue_id for _ in range(3)} == {0, 1, 2}
    with pytest.raises(NameRefused, match="no queue that can be written"):
        batches.choose_queue("t", [])
