"""What a pulling client holds: nothing is lost, nothing acknowledged that it did not commit."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from example_counts import scaled
from millstream.proxy.remoting.consumption import UnackedDelivery, UnackedQueue


def held(log_offset: int, attempt: int = 1) -> UnackedDelivery:
    return UnackedDelivery(f"handle-{log_offset}-{attempt}", log_offset, attempt)


def test_a_message_has_the_offset_of_its_queue_and_a_commit_consumes_what_lies_before() -> None:
    queue = UnackedQueue()
    assert queue.note_pull(5) == []
    assert [queue.give(5, held(50)), queue.give(9, held(90))] == [5, 9]
    assert queue.next_offset == 10
    assert queue.note_commit(9) == [held(50)]
    assert queue.note_commit(10) == [held(90)]
    assert queue.note_commit(10) == []


def test_what_comes_again_lies_behind_what_the_client_has_seen() -> None:
    queue = UnackedQueue()
    queue.note_pull(0)
    queue.give(0, held(0))
    queue.give(1, held(10))
    assert queue.note_sent_back(0) == held(0)
    assert queue.note_commit(2) == [held(10)]
    assert queue.give(0, held(0, 2)) == 2
    assert queue.give(2, held(20)) == 3
    assert queue.note_commit(3) == [held(0, 2)]


def test_a_client_that_goes_back_has_lost_what_it_was_given_since() -> None:
    queue = UnackedQueue()
    queue.note_pull(0)
    for number in range(4):
        queue.give(number, held(number))
    assert queue.note_pull(2) == [held(2), held(3)]
    assert queue.give(2, held(2, 2)) == 2
    assert queue.note_commit(4) == [held(0), held(1), held(2, 2)]


def test_a_message_that_returns_to_its_own_client_is_held_once() -> None:
    queue = UnackedQueue()
    queue.note_pull(0)
    queue.give(0, held(0))
    assert queue.give(0, held(0, 2)) == 1
    assert len(queue) == 1
    assert queue.note_commit(5) == [held(0, 2)]


def test_what_could_not_be_acknowledged_is_tried_again_with_the_next_commit() -> None:
    queue = UnackedQueue()
    queue.note_pull(0)
    for number in range(3):
        queue.give(number, held(number))
    done = queue.note_commit(2)
    queue.restore(done)
    assert queue.note_commit(2) == done
    queue.restore(queue.note_commit(3))
    assert queue.drop() == [held(2)]


class PullingClient(RuleBasedStateMachine):
    """A broker that delivers, a client that consumes in any order, and the queue in between."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = UnackedQueue()
        self.queue.note_pull(0)
        self.end = 0
        self.waiting: list[tuple[int, int]] = []
        self.at_client: dict[int, int] = {}
        self.seen_to = 0
        self.consumed: set[int] = set()
        self.acknowledged: set[int] = set()
        self.committed = 0

    @rule(count=st.integers(1, 4))
    def arrive(self, count: int) -> None:
        self.waiting += [(self.end + number, 1) for number in range(count)]
        self.end += count

    @precondition(lambda self: self.waiting)
    @rule(count=st.integers(1, 4))
    def pull(self, count: int) -> None:
        assert self.queue.note_pull(self.seen_to) == []
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        for message, attempt in taken:
            offset = self.queue.give(message, held(message, attempt))
            assert offset >= self.seen_to, "offsets of a client only grow"
            self.seen_to = offset + 1
            self.at_client[offset] = message

    @precondition(lambda self: self.at_client)
    @rule(data=st.data())
    def consume(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.at_client)))
        self.consumed.add(self.at_client.pop(offset))

    @precondition(lambda self: self.at_client)
    @rule(data=st.data())
    def send_back(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.at_client)))
        message = self.at_client.pop(offset)
        one = self.queue.note_sent_back(message)
        assert one is not None
        self.waiting.append((message, one.attempt + 1))

    @rule()
    def commit(self) -> None:
        # RocketMQ's clients: the lowest offset that is not consumed, never less than before.
        offset = min(self.at_client, default=self.seen_to)
        self.committed = max(self.committed, offset)
        for one in self.queue.note_commit(self.committed):
            assert one.log_offset in self.consumed, "nothing is acknowledged that the client did not consume"
            self.acknowledged.add(one.log_offset)

    @precondition(lambda self: self.seen_to > self.committed)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        """The client drops the queue and begins again where it committed last."""
        lost = self.queue.note_pull(self.committed)
        self.at_client.clear()
        self.seen_to = self.committed
        self.waiting += [(one.log_offset, one.attempt) for one in lost]

    @invariant()
    def nothing_is_lost(self) -> None:
        held_now = {one.log_offset for one in self.queue._held.values()}
        waiting = {message for message, _ in self.waiting}
        assert held_now | waiting | self.acknowledged == set(range(self.end))
        assert not held_now & waiting


TestPullingClient = PullingClient.TestCase
TestPullingClient.settings = settings(max_examples=scaled(50), stateful_step_count=30, deadline=None)
