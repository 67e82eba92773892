"""Stores of random histories, cut at their records: each is the store that was only ever written up to there."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from crash.disk_model import random_choice
from crash.traced_files import HASTY, TracedFiles, crash_state, lay_out
from store_samples import SMALL, log_records, message, pending

from millstream.model.clock import ManualClock
from millstream.model.errors import MillstreamError, StoreError
from millstream.protocol.record import decode_record
from millstream.store import rewind, truncation
from millstream.store.compaction import compacted_queue
from millstream.store.deleted_topics import DeletedTopics
from millstream.store.files import FileLayer
from millstream.store.message_store import MessageStore
from millstream.store.retention import RetentionPolicy
from millstream.store.truncation import cut_store
from millstream.store.write_batch import PendingRecord

SINGLES = ("orders", "other", "prices")
BATCHES = "batches"
PLACES = [(topic, queue_id) for topic in (*SINGLES, BATCHES) for queue_id in range(2)]
LIGHT_QUEUES = ("%LMQ%mqtt-a", "%LMQ%b")
LIGHT_PLACES = [(name, 0) for name in LIGHT_QUEUES]
STEPS = 40


@dataclass(frozen=True)
class Put:
    """A record, the only kind of step that makes the log longer."""

    record: PendingRecord


@dataclass(frozen=True)
class Act:
    """Something that is done to a store beside the log."""

    name: str
    do: Callable[[MessageStore, ManualClock], object] = field(compare=False)


Step = Put | Act


def _retain(store: MessageStore, clock: ManualClock) -> None:
    store.write_checkpoint()
    clock.advance_ms(1_000)
    store.retention = RetentionPolicy(keep_ms=1)
    store.retain()


def _delete(topic: str) -> Act:
    return Act(f"delete {topic}", lambda store, _: store.delete_topic(topic))


CHECKPOINT = Act("checkpoint", lambda store, _: store.write_checkpoint())
REOPEN = Act("reopen", lambda store, _: None)
COMPACT = Act("compact", lambda store, _: store.compact({"prices"}))
RETAIN = Act("retain", _retain)


def history(seed: int) -> list[Step]:
    """A third of the histories have compactions, another one retention: each explains where messages went."""
    choose = random.Random(seed)
    special = (COMPACT, RETAIN, CHECKPOINT)[seed % 3]
    steps: list[Step] = []
    for number in range(STEPS):
        act = choose.choices(
            [None, CHECKPOINT, REOPEN, special, _delete(choose.choice([*SINGLES, BATCHES, *LIGHT_QUEUES]))], [20, 2, 2, 2, 2]
        )[0]
        steps.append(Put(_record(choose, number)) if act is None else act)
    return steps


def _record(choose: random.Random, number: int) -> PendingRecord:
    topic, queue_id = choose.choice([*PLACES, ("prices", 0), ("prices", 0)])
    body, key = b"%d" % number + b"x" * choose.choice((0, 100, 700)), choose.choice(("k1", "k2", "k3"))
    if topic == BATCHES:
        return PendingRecord(message(body, topic=topic, key=key), queue_id, choose.randint(1, 4))
    # A record without a body is what compaction lets go of with its key.
    is_tombstone = topic == "prices" and choose.random() < 0.3
    light_queues = tuple(choose.sample(LIGHT_QUEUES, choose.choice((0, 0, 1, 2))))
    text = b"" if is_tombstone else body
    return pending(text, topic=topic, queue_id=queue_id, tag=f"t{number % 3}", key=key, light_queues=light_queues)


def run(directory: Path, steps: Sequence[Step], files: FileLayer = HASTY) -> list[tuple[int, int]]:
    """Carry the steps out; of each record the number of its step and the log offset."""
    clock = ManualClock()
    store = MessageStore.open(directory, SMALL, clock=clock, files=files)
    places = []
    for number, step in enumerate(steps):
        if isinstance(step, Put):
            places.append((number, store.put([step.record])[0].log_offset))
        elif step is REOPEN:
            store.close()
            store = MessageStore.open(directory, SMALL, clock=clock, files=files)
        else:
            step.do(store, clock)
    store.close()
    return places


Content = dict[str, Any]


def content(directory: Path, files: FileLayer = HASTY) -> Content:
    """All that readers find, and where new records go."""
    store = MessageStore.open(directory, SMALL, clock=ManualClock(start_ms=10**14), files=files)
    try:
        found: Content = {"start": store.log_start, "topics": sorted(store.topics)}
        found["compacted"] = {place: store.is_compacted(*place) for place in PLACES}
        found["queues"] = {place: dict(_messages(store, *place)) for place in (*PLACES, *LIGHT_PLACES)}
        found["keys"] = {(topic, key): _by_key(store, topic, key) for topic in SINGLES for key in ("k1", "k2", "k3")}
        found["log"] = log_records(store)
        found["next"] = {place: store.put([_next_record(*place)])[0].queue_offset for place in PLACES}
        ends = {name: store.max_offset(name, 0) for name in LIGHT_QUEUES}
        store.put([pending(b"next", topic="orders", light_queues=LIGHT_QUEUES)])
        found["next"] |= {(name, 0): store.max_offset(name, 0) - 1 for name in LIGHT_QUEUES}
        for name in LIGHT_QUEUES:
            # One of which nothing is left at all begins anew.
            assert found["next"][name, 0] == ends[name]
        for place in PLACES:
            if place == ("orders", 0):
                continue
            *before, (number, last) = _messages(store, *place)
            assert (number, last[2]) == (found["next"][place], b"next")
            assert dict(before) == found["queues"][place]
        return found
    finally:
        store.close()


def _next_record(topic: str, queue_id: int) -> PendingRecord:
    return PendingRecord(message(b"next", topic=topic), queue_id, 1 if topic == BATCHES else None)


def _messages(store: MessageStore, topic: str, queue_id: int) -> Iterator[tuple[int, tuple[int, int, bytes, int]]]:
    start, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    for entry in store.entries(topic, queue_id, start, end - start):
        record = store.read(entry)
        read = decode_record(record)
        assert (read.topic, read.queue_id) == (topic, queue_id) or topic in LIGHT_QUEUES
        yield entry.queue_offset, (entry.message_count, entry.tags_code, read.body, read.log_offset)


def _by_key(store: MessageStore, topic: str, key: str) -> list[bytes]:
    return [bytes(record) for record in store.find_by_key(topic, key)]


def refused_cut(directory: Path, log_offset: int) -> StoreError | None:
    try:
        cut_store(directory, log_offset, SMALL.segment_bytes, HASTY)
    except StoreError as error:
        return error
    return None


def check_cut(tmp_path: Path, steps: list[Step], number: int, log_offset: int) -> None:
    """Cut a copy of the whole store and compare it with one that was written up to that step."""
    whole, cut, expected = (tmp_path / name for name in ("whole", "cut", "expected"))
    for directory in (cut, expected):
        shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(whole, cut)
    refusal = refused_cut(cut, log_offset)
    if refusal is not None:
        assert refusal.name == "CUT_REFUSED"
        assert "compacted" in str(refusal) or "the log holds" in str(refusal)
        assert content(cut) == content(shutil.copytree(whole, expected))
        return
    found, written, undone = content(cut), steps[:number], steps[number:]
    compare(found, expect(expected, written), undone, [place for place in (*PLACES, *LIGHT_PLACES) if place[0] != "prices"])
    for place in (("prices", 0), ("prices", 1)):
        # A compaction can come behind the place of the cut, and a topic that comes back has all its records.
        done = [*written, COMPACT] if COMPACT in undone else written
        is_compacted = found["compacted"][place]
        done = done if is_compacted else [step for step in written if step is not COMPACT]
        compare(found, expect(expected, done), undone, [place])


def expect(directory: Path, steps: Sequence[Step]) -> Content:
    """What is in a store that was only ever written up to there."""
    shutil.rmtree(directory, ignore_errors=True)
    run(directory, steps)
    return content(directory)


def compare(found: Content, expected: Content, undone: Sequence[Step], places: Sequence[tuple[str, int]]) -> None:
    """What was done after the place of the cut can have removed old messages, and nothing else."""
    deleted = {step.name.removeprefix("delete ") for step in undone if isinstance(step, Act)}
    start = found["start"] if RETAIN in undone else 0
    for place in places:
        left = {number: each for number, each in expected["queues"][place].items() if each[3] >= start}
        assert found["queues"][place] == left, place
        # Where a queue went on of which nothing is left is not known once its topic is deleted.
        if not (found["start"] and not left and place[0] in deleted):
            assert found["next"][place] == expected["next"][place], place
    kept = expected["log"] if not start else expected["log"][-len(found["log"]) or len(expected["log"]) :]
    assert found["log"] == kept
    for asked, records in expected["keys"].items():
        if asked[0] not in dict(places):
            continue
        assert found["keys"][asked] == [record for record in records if record in kept]
    if not (found["start"] and deleted):
        assert found["topics"] == expected["topics"]


@pytest.fixture(autouse=True)
def compacts_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacted_queue, "MIN_DUE_RECORDS", 4)


def explore(tmp_path: Path, seed: int, cuts: int) -> None:
    steps = history(seed)
    places = run(tmp_path / "whole", steps)
    chosen = random.Random(seed).sample(places, min(cuts, len(places)))
    for place in chosen:
        check_cut(tmp_path, steps, *place)


@pytest.mark.parametrize("seed", range(12))
def test_a_cut_store_is_the_store_that_was_only_written_up_to_there(tmp_path: Path, seed: int) -> None:
    explore(tmp_path, seed, 3)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 400))
def test_each_cut_of_a_store_is_the_store_that_was_only_written_up_to_there(tmp_path: Path, seed: int) -> None:
    explore(tmp_path, seed, STEPS)


def crash_states(traced: TracedFiles, choose: random.Random, count: int, directory: Path) -> Iterator[str]:
    """Lay out the disk after crashes at random steps, and say which."""
    for number in range(count):
        steps = choose.randrange(len(traced.steps) + 1)
        lay_out(crash_state(traced, random_choice(choose, 0.5), steps), directory)
        yield f"crash {number} after {steps} of {len(traced.steps)} steps"


def crash_in_cut_and_start(tmp_path: Path, seed: int, first: int, second: int) -> int:
    """Crash a cut, and each start over what it left; how many second crashes found a cut that was under way."""
    steps, choose = history(seed), random.Random(seed)
    places = run(tmp_path / "whole", steps)
    number, log_offset = places[len(places) // 2]
    shutil.copytree(tmp_path / "whole", tmp_path / "traced")
    whole = content(shutil.copytree(tmp_path / "whole", tmp_path / "read"))
    traced = TracedFiles(tmp_path / "traced")
    cut_store(tmp_path / "traced", log_offset, SMALL.segment_bytes, traced)
    cut = content(shutil.copytree(tmp_path / "traced", tmp_path / "cut"))
    assert cut != whole
    compare(cut, expect(tmp_path / "expected", steps[:number]), steps[number:], PLACES)
    interrupted = 0
    for where in crash_states(traced, choose, first, tmp_path / "crashed"):
        is_under_way = (tmp_path / "crashed" / "cut-to").exists()
        starting = TracedFiles(tmp_path / "crashed")
        MessageStore.open(tmp_path / "crashed", SMALL, clock=ManualClock(), files=starting).close()
        interrupted += is_under_way * second
        for again in crash_states(starting, choose, second, tmp_path / "again"):
            assert content(tmp_path / "again") in ((cut,) if is_under_way else (cut, whole)), f"{where}; {again}"
    return interrupted


CRASHED_HISTORIES = (2, 5, 8)
"""Without retention and compaction."""


@pytest.mark.parametrize("seed", CRASHED_HISTORIES)
def test_a_crash_in_the_start_that_finishes_a_cut_leaves_the_cut_store(tmp_path: Path, seed: int) -> None:
    assert crash_in_cut_and_start(tmp_path, seed, 8, 2) > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 92, 3))
def test_many_crashes_in_starts_that_finish_a_cut_leave_the_cut_store(tmp_path: Path, seed: int) -> None:
    crash_in_cut_and_start(tmp_path, seed, 40, 10)


def explore_all(tmp_path: Path, seeds: Sequence[int]) -> None:
    for seed in seeds:
        explore(tmp_path / str(seed), seed, 8)


def _keep_deletions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeletedTopics, "take_back", lambda deleted, log_end: None)


def _forget_earlier_deletions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        DeletedTopics,
        "add",
        lambda deleted, topics, end: deleted._save(deleted._offsets | {topic: [end] for topic in topics}),
    )


def _rewind_over_deletions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeletedTopics, "last_log_offset", 0)


def _count_no_batches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        truncation,
        "rewind_checkpoint",
        lambda checkpoint, tail, log_offset: rewind.rewind_checkpoint(checkpoint, replace(tail, counts={}), log_offset),
    )


@pytest.mark.parametrize(
    ("plant", "seeds"),
    [
        (_keep_deletions, CRASHED_HISTORIES),
        (_forget_earlier_deletions, range(2, 60, 3)),
        (_rewind_over_deletions, CRASHED_HISTORIES),
        (_count_no_batches, range(2, 60, 3)),
    ],
)
def test_a_planted_bug_is_found_by_the_histories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], seeds: Sequence[int]
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, MillstreamError)):
        explore_all(tmp_path, seeds)
