"""Transactions over a real store against a plain dict: any order of sends, ends, questions, saves, kills, power cuts.

The model keeps for each message id all states that its transaction went through. A kill takes none of them back; a
power cut may take back those behind the last flush, and with sync flush none that was answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

from crash.disk_model import DiskState, random_choice
from crash.traced_files import TracedFiles, crash_state, lay_out
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from example_counts import scaled
from millstream.broker.delivery.half_messages import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, half, outcome_of
from millstream.broker.delivery.pending_transactions import SavedTransactions
from millstream.broker.delivery.transactions import TransactionOptions, Transactions
from millstream.broker.queues.topics import TopicRegistry
from millstream.broker.state.broker_state import BrokerState
from millstream.broker.state.state_log import StateLog
from millstream.model.clock import ManualClock
from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.errors import MessageRefused, MillstreamError
from millstream.model.message import Address, OutgoingMessage, StoredMessage
from millstream.model.operations import Resolution
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.record import decode_record
from millstream.store.appender import Appender
from millstream.store.message_store import MessageStore, PendingRecord, StoreOptions
from millstream.store.snapshot import Snapshot

T = TypeVar("T")

NEVER_MS = 1 << 40
OPTIONS = TransactionOptions(max_checks=2, keep_ms=10 * 3_600_000)
ENDS = {Resolution.COMMIT: "committed", Resolution.ROLLBACK: "rolled back"}
RESOLUTIONS = st.sampled_from([Resolution.COMMIT, Resolution.ROLLBACK])


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.scratch = Path(tempfile.mkdtemp(prefix="millstream-test-", dir=memory if memory.is_dir() else None))
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.choose = random.Random(0)
        self.lives = 0
        self.states: dict[str, list[str]] = {}
        self.flushed: dict[str, int] = {}
        self.asked: list[str] = []
        self.answers = True

    @initialize(sync_flush=st.booleans(), seed=st.integers(0, 1000))
    def start(self, sync_flush: bool, seed: int) -> None:
        self.choose = random.Random(seed)
        self.sync_flush = sync_flush
        self.root = self.scratch / "0"
        self._open()

    def _run(self, work: Awaitable[T]) -> T:
        async def whole() -> T:
            return await work

        return self.loop.run_until_complete(whole())

    def _open(self) -> None:
        self.files = TracedFiles(self.root)
        options = StoreOptions(
            segment_bytes=1 << 20, consume_queue_entries=100, sync_flush=self.sync_flush, flush_interval_ms=NEVER_MS
        )
        self.store = MessageStore.open(self.root / "store", options, clock=self.clock, files=self.files)
        topics = TopicRegistry(Snapshot(self.root / "topics.json", self.files))
        state = BrokerState(Snapshot(self.root / "state.json", self.files))
        state.add(topics.table)
        state.load(StateLog(self.store, Address("127.0.0.1", 10911)))
        topics.ensure_own(TopicConfig("tx", MessageType.TRANSACTION, 1, 1))
        saved = SavedTransactions(Snapshot(self.root / "transactions.json", self.files))
        self._run(self._begin(topics, saved))

    async def _begin(self, topics: TopicRegistry, saved: SavedTransactions) -> None:
        self.appender = Appender(self.store)
        self.transactions = Transactions(self.store, topics, saved, self.clock, OPTIONS)
        # The rounds are run by the rules alone.
        self.transactions._task.start = lambda: None  # type: ignore[method-assign]
        self.transactions.on_check.append(self._ask)
        await self.transactions.start(self.appender)
        followed = SavedTransactions(Snapshot(self.root / "followed.json", self.files))
        self.follower = Transactions(self.store, topics, followed, self.clock, OPTIONS)

    def _ask(self, question: RecoverOrphanedTransaction) -> bool:
        if self.answers:
            self.asked.append(question.transaction_id)
        return self.answers

    @property
    def pending(self) -> list[str]:
        return sorted(each for each, states in self.states.items() if states[-1] == "pending")

    def _send(self, message_id: str) -> None:
        message = OutgoingMessage("tx", message_id.encode(), {"UNIQ_KEY": message_id})
        waiting = half(message, 0)
        place = self._run(self.appender.append(PendingRecord(waiting, 0)))
        if self.choose.random() < 0.5:
            self.transactions.note(waiting, place)

    @rule()
    def send(self) -> None:
        message_id = f"m{len(self.states)}"
        self._send(message_id)
        self.states[message_id] = ["none", "pending"]

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        self._send(data.draw(st.sampled_from(self.pending)))

    @precondition(lambda self: self.states)
    @rule(data=st.data(), resolution=RESOLUTIONS)
    def end(self, data: st.DataObject, resolution: Resolution) -> None:
        message_id = data.draw(st.sampled_from(sorted(self.states)))
        (answer,) = self._ends(message_id, [resolution])
        self._expect(message_id, resolution, answer)

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), resolutions=st.lists(RESOLUTIONS, min_size=2, max_size=3))
    def end_by_several(self, data: st.DataObject, resolutions: list[Resolution]) -> None:
        message_id = data.draw(st.sampled_from(self.pending))
        for resolution, answer in zip(resolutions, self._ends(message_id, resolutions), strict=True):
            self._expect(message_id, resolution, answer)

    def _ends(self, message_id: str, resolutions: list[Resolution]) -> list[BaseException | None]:
        async def all_at_once() -> list[BaseException | None]:
            calls = [self.transactions.end("tx", message_id, resolution) for resolution in resolutions]
            return await asyncio.gather(*calls, return_exceptions=True)

        return self._run(all_at_once())

    def _expect(self, message_id: str, resolution: Resolution, answer: BaseException | None) -> None:
        states = self.states[message_id]
        if states[-1] == "pending":
            assert answer is None
            states.append(ENDS[resolution])
        elif states[-1] == ENDS[resolution]:
            assert answer is None
        else:
            assert isinstance(answer, MessageRefused)
            assert answer.name == ("TRANSACTION_NOT_FOUND" if states[-1] == "none" else "TRANSACTION_ENDED")

    @rule(wait_ms=st.sampled_from([1000, 6000, 30_000, 11 * 3_600_000]), answers=st.booleans())
    def time_goes(self, wait_ms: int, answers: bool) -> None:
        self.clock.advance_ms(wait_ms)
        self.answers = answers
        self.asked.clear()
        self._run(self.transactions._round())
        assert set(self.asked) <= set(self.pending)
        for message_id in self._stored_ids(GIVEN_UP_TOPIC):
            if self.states[message_id][-1] == "pending" and not self.transactions._pending.find(message_id):
                self.states[message_id].append("given up")

    @rule()
    def save(self) -> None:
        self._run(self.transactions._save(self.transactions._settled_log_offset))
        self._note_flush()

    @rule(steps=st.integers(1, 3))
    def follow(self, steps: int) -> None:
        """Somebody follows the transactions by the log, as a replica does."""
        for _ in range(steps):
            self.follower.take_up_some()
        self._run(self.follower.save_followed())
        self._note_flush()

    @rule()
    def follow_all(self) -> None:
        while self.follower.take_up_some():
            pass
        known, followed = self.transactions._pending, self.follower._pending
        while self.transactions._take_new():
            pass
        assert [one.queue_offset for one in followed.list_saved()] == [one.queue_offset for one in known.list_saved()]

    @rule()
    def flush(self) -> None:
        self.store.flush_log()
        self._note_flush()

    def _note_flush(self) -> None:
        if self.store.flushed_log_offset == self.store.written_log_offset:
            self.flushed = {message_id: len(states) for message_id, states in self.states.items()}

    @rule()
    def checkpoint(self) -> None:
        self.store.write_checkpoint()
        self._note_flush()

    @rule()
    def kill(self) -> None:
        self._restart()
        expected = {message_id: states[-1] for message_id, states in self.states.items() if states[-1] != "none"}
        assert self._actual() == expected

    @rule()
    def cut_the_power(self) -> None:
        left = crash_state(self.files, random_choice(self.choose, self.choose.random()))
        if self.sync_flush:
            self._note_flush()
        self._restart(left)
        actual = self._actual()
        for message_id, states in self.states.items():
            least = self.flushed.get(message_id, 1)
            state = actual.get(message_id, "none")
            assert state in states[least - 1 :], (message_id, states, state)
            del states[states.index(state) + 1 :]
            self.flushed[message_id] = len(states)

    def _restart(self, state: DiskState | None = None) -> None:
        """The next life begins with a copy of the files as they are, or with what a power cut left of them.

        The last life's end changes nothing in it.
        """
        self.lives += 1
        following = self.scratch / str(self.lives)
        if state is None:
            shutil.copytree(self.root, following)
        else:
            lay_out(state, following)
        self._abandon()
        shutil.rmtree(self.root)
        self.root = following
        self._open()

    def _abandon(self) -> None:
        with contextlib.suppress(MillstreamError, OSError):
            self._run(self.appender.close())
        with contextlib.suppress(MillstreamError, OSError):
            self.store.close()

    def _messages(self, topic: str) -> list[StoredMessage]:
        return [decode_record(self.store.read(entry)) for entry in self.store.entries(topic, 0, 0, 10_000)]

    def _stored_ids(self, topic: str) -> list[str]:
        return [message.message_id for message in self._messages(topic)]

    def _actual(self) -> dict[str, str]:
        """The state of each transaction that the store knows, as its parts say it."""
        outcomes: dict[str, set[str]] = {}
        for message in self._messages(OP_TOPIC):
            outcome = outcome_of(message)
            assert outcome is not None
            outcomes.setdefault(message.message_id, set()).add(outcome.value)
        committed = set(self._stored_ids("tx"))
        found = {}
        for message_id in set(self._stored_ids(HALF_TOPIC)):
            said = outcomes.get(message_id, set())
            if self.transactions._pending.find(message_id):
                found[message_id] = "pending"
            elif message_id in committed:
                found[message_id] = "committed"
            else:
                found[message_id] = "given up" if "given up" in said else "rolled back"
            assert ("committed" in said) == (message_id in committed), "a mark says what is so"
            assert (found[message_id] == "committed") == (message_id in committed), "once or never"
        return found

    @invariant()
    def each_is_committed_once_or_never(self) -> None:
        if not hasattr(self, "store"):
            return
        committed = sorted(self._stored_ids("tx"))
        assert committed == sorted(each for each, states in self.states.items() if states[-1] == "committed")
        while self.transactions._take_new():
            pass
        for message_id, states in self.states.items():
            assert bool(self.transactions._pending.find(message_id)) == (states[-1] == "pending")

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self._abandon()
        self.loop.close()
        shutil.rmtree(self.scratch)


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(
    max_examples=scaled(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
