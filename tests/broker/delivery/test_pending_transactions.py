"""What is pending and when it is asked about, against a plain dict, over any order of events and restarts."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from example_counts import scaled
from millstream.broker.delivery import pending_transactions
from millstream.broker.delivery.pending_transactions import PendingTransactions

IDS = st.sampled_from(["a", "b", "c"])


@dataclass
class Known:
    message_id: str
    next_check_ms: int
    checks: int = 0


class PendingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pending = PendingTransactions()
        self.model: dict[int, Known] = {}
        self.next_offset = 0
        self.now_ms = 1000

    @rule(message_id=IDS, wait_ms=st.integers(0, 100), gap=st.integers(0, 2))
    def prepare(self, message_id: str, wait_ms: int, gap: int) -> None:
        offset = self.next_offset + gap
        assert self.pending.add(offset, message_id, self.now_ms + wait_ms)
        self.model[offset] = Known(message_id, self.now_ms + wait_ms)
        self.next_offset = offset + 1

    @precondition(lambda self: self.next_offset)
    @rule(data=st.data())
    def prepare_again(self, data: st.DataObject) -> None:
        assert not self.pending.add(data.draw(st.integers(0, self.next_offset - 1)), "again", 0)

    @rule()
    def pass_over(self) -> None:
        self.pending.note_passed(self.next_offset)
        self.next_offset += 1

    @rule(step_ms=st.integers(-20, 60))
    def time_goes(self, step_ms: int) -> None:
        self.now_ms += step_ms

    @rule(max_count=st.integers(1, 4), answers=st.lists(st.booleans(), min_size=4, max_size=4))
    def check(self, max_count: int, answers: list[bool]) -> None:
        due = self.pending.due(self.now_ms, max_count)
        expected = sorted((known.next_check_ms, offset) for offset, known in self.model.items())
        expected = [each for each in expected if each[0] <= self.now_ms][:max_count]
        assert due == [offset for _, offset in expected]
        assert self.pending.due(self.now_ms, max_count) == due, "handed out until something is done about them"
        for offset, is_asked in zip(due, answers, strict=False):
            self.model[offset].next_check_ms = self.now_ms + 30
            if is_asked:
                self.model[offset].checks += 1
                self.pending.note_check(offset, self.now_ms + 30)
            else:
                self.pending.put_off(offset, self.now_ms + 30)

    @rule(offset=st.integers(0, 40))
    def end(self, offset: int) -> None:
        assert self.pending.remove(offset) == (self.model.pop(offset, None) is not None)

    @rule()
    def restart(self) -> None:
        self.pending = PendingTransactions(self.pending.next_queue_offset, list(self.pending.list_saved()))

    @invariant()
    def agrees(self) -> None:
        assert len(self.pending) == len(self.model)
        assert self.pending.next_queue_offset == self.next_offset
        assert self.pending.oldest() == min(self.model, default=None)
        for message_id in "abc":
            found = [offset for offset, known in self.model.items() if known.message_id == message_id]
            assert self.pending.find(message_id) == found
        for offset, known in self.model.items():
            assert self.pending.checks(offset) == known.checks


TestPendingMachine = PendingMachine.TestCase
TestPendingMachine.settings = settings(max_examples=scaled(100), stateful_step_count=40, deadline=None)


def test_ended_transactions_leave_no_growing_trace() -> None:
    pending = PendingTransactions()
    for offset in range(20_000):
        pending.add(offset, f"id{offset}", 3_600_000)
        pending.remove(offset)
    assert len(pending._heap) <= 2 * pending_transactions._SPARE_ENTRIES
    assert not pending._by_id
