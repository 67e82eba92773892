"""S3, the write-order explorer: every legal disk after a crash at every step of a random run keeps the promises.

A run puts, flushes, writes checkpoints, deletes topics, stops and starts; sometimes it goes on from one of its own
crash states, so that crashes within a recovery are met as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from crash.disk_model import Choice, DiskModel, DiskState, random_choice
from crash.ledger import Content, Ledger, Sent, content_of
from crash.programme import ANY_ERROR, ProgrammeRun
from crash.traced_files import HASTY, TracedFiles, lay_out
from millstream.model.clock import ManualClock
from millstream.store.message_store import MessageStore, StoreOptions

__all__ = ["KEYS", "TraceWriter", "explore_write_orders"]

TOPICS = ("orders", "bills")
QUEUES = 2
BOUND_TOPIC = "calls"
"""A topic that is never deleted, whose records go to light queues as well."""
LIGHT_QUEUES = ("%LMQ%mqtt-a", "%LMQ%b")
KEYS = {
    *((topic, queue_id) for topic in (*TOPICS, BOUND_TOPIC) for queue_id in range(QUEUES)),
    *((name, 0) for name in LIGHT_QUEUES),
}

STEPS_OF_A_RUN = 12
"""Calls of the store that one run makes."""

RANDOM_STATES = 3
"""Random states of each crash moment, beside the systematic ones."""

MAX_SYSTEMATIC = 24
"""Choices of one crash moment that are flipped one by one; beyond them a sample is taken."""

PUT_AFTER_EVERY = 8
"""Every so many states the store must also take a message and start once more."""


@dataclass
class Recovered:
    """What a start over one state gave: its content, or what went wrong, and how much it had to scan."""

    content: Content
    scanned_records: int = 0
    rebuilt_queues: int = 0
    damaged_places: int = 0
    error: str | None = None


class TraceWriter:
    """Random calls of a store on traced files, with the ledger of what it promised."""

    def __init__(self, directory: Path, options: StoreOptions, choose: random.Random, ledger: Ledger) -> None:
        self.files = TracedFiles(directory)
        self.ledger = ledger
        self._directory, self._options, self._choose = directory, options, choose
        self._clock = ManualClock(step_ms=1)
        self._number = choose.randrange(10**9)
        self.store = self._open()

    def _open(self) -> MessageStore:
        return MessageStore.open(self._directory, self._options, clock=self._clock, files=self.files)

    def run(self, calls: int) -> None:
        """Make so many random calls; the store is open afterwards."""
        actions: list[tuple[int, Callable[[], None]]] = [
            (10, self._put), (5, self._flush), (2, self._checkpoint), (1, self._delete), (1, self._stop_and_start)
        ]  # fmt: skip
        weights = [weight for weight, _ in actions]
        for _ in range(calls):
            self._choose.choices([action for _, action in actions], weights)[0]()
            self._see()

    def _promise(self, level: str) -> None:
        self.ledger.promise(level, len(self.files.steps), len(self.ledger.sent))

    def _put(self) -> None:
        records = []
        for _ in range(self._choose.choice((1, 1, 2, 5))):
            self._number += 1
            body = b"%d " % self._number + b"x" * self._choose.choice((0, 20, 200, 700))
            topic, queue_id = self._choose.choice((*TOPICS, BOUND_TOPIC)), self._choose.randrange(QUEUES)
            light_queues = LIGHT_QUEUES[: self._choose.randrange(3)] if topic == BOUND_TOPIC else ()
            records.append(Sent(topic, queue_id, body, light_queues))
        self.ledger.sent += records
        self.store.put([record.pending() for record in records])
        self._promise("written")

    def _flush(self) -> None:
        self.store.flush_log()
        self._promise("flushed")

    def _checkpoint(self) -> None:
        self.store.write_checkpoint()
        self._promise("flushed")
        self._promise("checkpointed")

    def _delete(self) -> None:
        topic, begun = self._choose.choice(TOPICS), len(self.files.steps)
        self.store.delete_topic(topic)
        self.ledger.wiped.append((topic, len(self.ledger.sent), begun, len(self.files.steps)))

    def _stop_and_start(self) -> None:
        self.store.close()
        self.store = self._open()
        self._promise("flushed")
        self._promise("checkpointed")

    def _see(self) -> None:
        """Note what readers may see: under sync flush it must never be taken back."""
        if self._options.sync_flush:
            visible = {key: self.store.max_offset(*key) for key in KEYS}
            seen = 0
            counts = dict.fromkeys(KEYS, 0)
            first = {topic: number for topic, number, _, _ in self.ledger.wiped}
            for number, sent in enumerate(self.ledger.sent):
                key = (sent.topic, sent.queue_id)
                if number >= first.get(sent.topic, 0):
                    counts[key] += 1
                    if counts[key] <= visible[key]:
                        seen = number + 1
            self.ledger.promise("seen", len(self.files.steps), seen)


def _choices_at(model: DiskModel, choose: random.Random) -> Iterator[tuple[str, Choice]]:
    """The named ways to choose among what a crash may leave: all, nothing, all but one, one alone, and at random."""
    yield "all", lambda versions, _what: versions - 1
    width = model.open_choices()
    if not width:
        return
    yield "nothing", lambda _versions, _what: 0
    for number in sorted(choose.sample(range(width), min(width, MAX_SYSTEMATIC))):
        yield f"all but {number}", _one_differs(number, all_else=True)
        if width > 1:
            yield f"only {number}", _one_differs(number, all_else=False)
    for _ in range(RANDOM_STATES):
        yield "random", random_choice(random.Random(choose.random()), choose.random())


def _one_differs(number: int, *, all_else: bool) -> Choice:
    asked = -1

    def choose(versions: int, _what: str) -> int:
        nonlocal asked
        asked += 1
        return versions - 1 if (asked != number) == all_else else 0

    return choose


class Explorer:
    """Opens the crash states of traces and holds them against their ledgers."""

    def __init__(self, run: ProgrammeRun, options: StoreOptions) -> None:
        self._run, self._options = run, options
        self._directory = run.scratch / "state"
        self._recovered: dict[int, Recovered] = {}

    def explore(self, writer: TraceWriter, choose: random.Random, wanted: int) -> DiskState | None:
        """Try the states of every crash moment until `wanted` distinct ones are done; one of them for the next run."""
        model, kept = writer.files.model_at_start, None
        self._recovered.clear()
        for moment, step in enumerate(writer.files.steps, start=1):
            model.take(step)
            for name, choice in _choices_at(model, choose):
                state = model.state(choice)
                self._check(state, writer.ledger, moment, name)
                if choose.random() < 1 / (1 + moment):
                    kept = state
            if self._run.counts.get("states", 0) >= wanted or len(self._run.failures) > 100:
                break
        return kept

    def _check(self, state: DiskState, ledger: Ledger, moment: int, name: str) -> None:
        self._run.count("checks")
        known = hash(tuple(state.items()))
        recovered = self._recovered.get(known)
        if recovered is None:
            self._run.count("states")
            recovered = self._recovered[known] = self._recover(state)
        wrong = self._broken(recovered, ledger, moment, is_kill=name == "all")
        if wrong is not None:
            lay_out(state, self._directory)
            self._run.fail(f"crash at step {moment}, {name} on the disk: {wrong}", self._directory)

    def _broken(self, recovered: Recovered, ledger: Ledger, moment: int, *, is_kill: bool) -> str | None:
        if recovered.error is not None:
            return recovered.error
        promised = ledger.at(moment)
        at_least = max(promised.flushed, promised.seen, promised.written if is_kill else 0)
        wrong = ledger.broken_by(recovered.content, moment, at_least)
        if wrong is not None:
            return wrong
        if recovered.scanned_records > len(ledger.sent) - promised.checkpointed:
            return f"the start scanned {recovered.scanned_records} records, {promised.checkpointed} were behind it"
        if recovered.rebuilt_queues or recovered.damaged_places:
            return f"a mere crash cost {recovered.rebuilt_queues} queues and {recovered.damaged_places} damaged places"
        return None

    def _recover(self, state: DiskState) -> Recovered:
        lay_out(state, self._directory)
        is_used = self._run.counts["states"] % PUT_AFTER_EVERY == 0
        try:
            return recover(self._directory, self._options, is_used=is_used)
        except ANY_ERROR as error:
            return Recovered({}, error=f"{type(error).__name__}: {error}")


def recover(directory: Path, options: StoreOptions, *, is_used: bool) -> Recovered:
    """Start a store over the directory and read all of it; `is_used` also sends, and starts it again."""
    store = MessageStore.open(directory, options, clock=ManualClock(step_ms=1), files=HASTY)
    try:
        content = content_of(store, KEYS)
        report = store.recovery
        recovered = Recovered(content, report.scanned_records, report.rebuilt_queues, report.damaged_places)
        if is_used:
            key = (TOPICS[0], 0)
            place = store.put([Sent(*key, b"after").pending()])[0]
            if place.queue_offset != sum(content[key][0:1]) + len(content[key][1]):
                recovered.error = f"the next queue offset is {place.queue_offset}"
    finally:
        store.close()
    if is_used and recovered.error is None:
        again = MessageStore.open(directory, options, clock=ManualClock(step_ms=1), files=HASTY)
        try:
            expected = content | {key: (content[key][0], [*content[key][1], b"after"])}
            if content_of(again, KEYS) != expected:
                recovered.error = "a clean stop and start changed the content"
        finally:
            again.close()
    return recovered


def explore_write_orders(run: ProgrammeRun) -> None:
    """S3. Stops at 5,000 distinct states (CI), 100,000 (full) or 1,000,000 (soak)."""
    wanted = run.by_size(5_250, 100_000, 1_000_000)
    while run.counts.get("states", 0) < wanted and not run.failures:
        sync_flush = run.random.random() < 0.5
        options = StoreOptions(segment_bytes=2048, consume_queue_entries=5, sync_flush=sync_flush)
        ledger, state = Ledger(), None
        for _ in range(run.random.randrange(1, 4)):
            directory = run.scratch / "trace"
            lay_out(state or {}, directory)
            writer = TraceWriter(directory, options, run.random, ledger)
            if state is not None:
                content = content_of(writer.store, KEYS)
                writer.ledger = ledger.restarted(content, writer.store.recovery.scanned_records)
            run.count("runs")
            try:
                writer.run(STEPS_OF_A_RUN)
            finally:
                writer.store.close()
            run.count("steps", len(writer.files.steps))
            state = Explorer(run, options).explore(writer, run.random, wanted)
            ledger = writer.ledger
