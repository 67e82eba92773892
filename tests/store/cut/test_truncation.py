"""A store that is cut at a log offset is the store that it was at that offset, over any crash on the way."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from crash.disk_model import random_choice
from crash.traced_files import HASTY, TracedFiles, crash_state, lay_out
from store_samples import SMALL, log_records, pending, queue_content

from millstream.model.clock import ManualClock
from millstream.model.errors import MillstreamError, StartRefused, StoreError
from millstream.store.commit_log import CommitLog
from millstream.store.cut import truncation
from millstream.store.cut.truncation import cut_store
from millstream.store.damage import log_scan
from millstream.store.damage.integrity import CONFIRMED
from millstream.store.durability.flush_mark import FlushMark
from millstream.store.files import FileLayer
from millstream.store.message_store import MessageStore
from millstream.store.retention import RetentionPolicy

REPLICATED = replace(SMALL, replicated=True)
RECORDS = [
    pending(b"a", queue_id=0, key="k1"),
    pending(b"b", queue_id=1, key="k2"),
    pending(b"c" * 300, topic="other", queue_id=0, key="k1"),
    pending(b"d", queue_id=0, tag="paid"),
    pending(b"e" * 500, queue_id=1, key="k1"),
    pending(b"f", topic="third", queue_id=3, key="k3"),
] * 4
"""More than one segment of log."""


def fill(directory: Path, count: int, files: FileLayer = HASTY) -> list[int]:
    """A store of the first records, with checkpoints on the way; where each record begins, and the end."""
    store = MessageStore.open(directory, SMALL, clock=ManualClock(), files=files)
    offsets = []
    for number, record in enumerate(RECORDS[:count]):
        offsets.append(store.put([record])[0].log_offset)
        if number % 5 == 4:
            store.write_checkpoint()
    end = store.written_log_offset
    store.close()
    return [*offsets, end]


def content(directory: Path, files: FileLayer = HASTY) -> object:
    """All that readers find."""
    store = MessageStore.open(directory, SMALL, clock=ManualClock(), files=files)
    try:
        queues = {
            (topic, queue_id): (store.min_offset(topic, queue_id), queue_content(store, topic, queue_id))
            for topic in ("orders", "other", "third")
            for queue_id in range(4)
        }
        keys = {
            (topic, key): [bytes(record) for record in store.find_by_key(topic, key)]
            for topic in ("orders", "other", "third")
            for key in ("k1", "k2", "k3")
        }
        return queues, keys, store.written_log_offset, log_records(store)
    finally:
        store.close()


def test_a_cut_at_each_record_leaves_what_was_there_before_it(tmp_path: Path) -> None:
    offsets = fill(tmp_path / "whole", len(RECORDS))
    assert offsets[-1] > 2 * SMALL.segment_bytes
    for count, offset in enumerate(offsets):
        shutil.copytree(tmp_path / "whole", tmp_path / "cut")
        cut_store(tmp_path / "cut", offset, SMALL.segment_bytes, HASTY)
        fill(tmp_path / "expected", count)
        found, expected = content(tmp_path / "cut"), content(tmp_path / "expected")
        # Where a segment ends a log may go on in the next one: its end is at least that of the records.
        assert found[:2] == expected[:2]  # type: ignore[index]
        assert found[3] == expected[3]  # type: ignore[index]
        shutil.rmtree(tmp_path / "cut")
        shutil.rmtree(tmp_path / "expected")


def test_a_cut_whose_caller_knows_the_end_of_the_log_searches_nothing_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = fill(tmp_path / "searched", 4)
    shutil.copytree(tmp_path / "searched", tmp_path / "known")
    searched: list[int] = []

    def search(_data: memoryview, start: int) -> tuple[int, ...]:
        searched.append(start)
        return ()

    monkeypatch.setattr(log_scan, "possible_records", search)
    cut_store(tmp_path / "known", offsets[2], SMALL.segment_bytes, HASTY, log_end=offsets[-1])
    assert not searched
    cut_store(tmp_path / "searched", offsets[2], SMALL.segment_bytes, HASTY)
    assert searched
    assert content(tmp_path / "known") == content(tmp_path / "searched")


def test_what_is_written_after_a_cut_is_all_that_follows(tmp_path: Path) -> None:
    offsets = fill(tmp_path, len(RECORDS))
    cut_store(tmp_path, offsets[3], SMALL.segment_bytes, HASTY)
    store = MessageStore.open(tmp_path, SMALL, files=HASTY)
    appended = store.put([pending(b"new", queue_id=0)])[0]
    assert appended.log_offset == offsets[3]
    assert appended.queue_offset == 1
    store.close()
    assert queue_bodies(tmp_path) == [b"a", b"new"]


def queue_bodies(directory: Path) -> list[bytes]:
    store = MessageStore.open(directory, SMALL, files=HASTY)
    try:
        return [body for body, _ in queue_content(store, "orders", 0)]
    finally:
        store.close()


def test_7689_a_queue_whose_messages_are_all_gone_gives_no_offset_twice(tmp_path: Path) -> None:
    """Retention has removed all of the queue before the cut."""
    clock = ManualClock()
    store = MessageStore.open(tmp_path, SMALL, clock=clock, files=HASTY)
    for body in (b"a", b"b", b"c"):
        store.put([pending(body, topic="old", queue_id=0)])
    for _ in range(8):
        store.put([pending(b"x" * 700, queue_id=0)])
    store.write_checkpoint()
    store.retention = RetentionPolicy(keep_ms=1)
    clock.advance_ms(1_000)
    store.retain()
    assert (store.log_start > 0, store.min_offset("old", 0), store.max_offset("old", 0)) == (True, 3, 3)
    kept = store.put([pending(b"kept", queue_id=0)])[0]
    cut_at = store.put([pending(b"cut off", topic="old", queue_id=0)])[0].log_offset
    store.close()
    cut_store(tmp_path, cut_at, SMALL.segment_bytes, HASTY)
    again = MessageStore.open(tmp_path, SMALL, clock=clock, files=HASTY)
    assert (again.min_offset("old", 0), again.max_offset("old", 0)) == (3, 3)
    assert again.put([pending(b"d", topic="old", queue_id=0)])[0].queue_offset == 3
    assert again.max_offset("orders", 0) == kept.queue_offset + 1
    assert again.min_offset("orders", 0) > 0
    again.close()


def test_only_a_place_where_a_record_begins_can_be_cut(tmp_path: Path) -> None:
    offsets = fill(tmp_path, 6)
    before = content(tmp_path)
    for wrong in (offsets[1] + 1, offsets[2] - 1, offsets[-1] + 1, 1 << 40):
        with pytest.raises(StoreError) as refused:
            cut_store(tmp_path, wrong, SMALL.segment_bytes, HASTY)
        assert refused.value.name == "CUT_REFUSED"
    assert content(tmp_path) == before


def test_an_open_store_is_not_cut(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, SMALL, files=HASTY)
    with pytest.raises(StartRefused) as refused:
        cut_store(tmp_path, 0, SMALL.segment_bytes, HASTY)
    assert refused.value.name == "DATA_DIRECTORY_IN_USE"
    store.close()


def explore(tmp_path: Path, rounds: int) -> int:
    """Crash a cut after each of its steps; how many crashes left the store as it was."""
    offsets = fill(tmp_path / "whole", 14)
    cut_at = offsets[4]
    fill(tmp_path / "expected", 4)
    whole, expected = content(tmp_path / "whole"), content(tmp_path / "expected")
    shutil.copytree(tmp_path / "whole", tmp_path / "traced")
    traced = TracedFiles(tmp_path / "traced")
    cut_store(tmp_path / "traced", cut_at, SMALL.segment_bytes, traced)
    untouched = 0
    for steps in range(len(traced.steps) + 1):
        for number in range(rounds):
            choose = random.Random(steps * 1_000 + number)
            lay_out(crash_state(traced, random_choice(choose, 0.5), steps), tmp_path / "after")
            found = content(tmp_path / "after")
            assert found in (whole, expected), f"after {steps} steps, round {number}"
            untouched += found == whole
    return untouched


def test_10666_a_crash_in_a_cut_leaves_the_store_before_it_or_after_it(tmp_path: Path) -> None:
    assert explore(tmp_path, 2) > 0


@pytest.mark.long
def test_10666_many_crashes_in_a_cut_leave_the_store_before_it_or_after_it(tmp_path: Path) -> None:
    assert explore(tmp_path, 40) > 0


def _do_not_clear(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitLog, "_clear_from", lambda log, segment, log_offset: None)


def _keep_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(truncation, "rewind_checkpoint", lambda checkpoint, *words: checkpoint)


def _forget_the_flush_mark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlushMark, "reset", lambda mark, log_offset: None)


@pytest.mark.parametrize("plant", [_do_not_clear, _keep_the_checkpoint, _forget_the_flush_mark])
def test_a_planted_bug_in_a_cut_is_found(plant: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = fill(tmp_path / "a", 14)
    fill(tmp_path / "expected", 4)
    expected = content(tmp_path / "expected")
    with monkeypatch.context() as patch:
        plant(patch)  # type: ignore[operator]
        cut_store(tmp_path / "a", offsets[4], SMALL.segment_bytes, HASTY)
    try:
        found = content(tmp_path / "a")
    except MillstreamError:
        return
    assert found != expected


def find_after_cut(directory: Path) -> list[bytes]:
    """Cut a store whose key index goes beyond the cut, write a key there, and find it."""
    offsets = fill(directory, 15)
    cut_store(directory, offsets[4], SMALL.segment_bytes, HASTY)
    store = MessageStore.open(directory, SMALL, files=HASTY)
    store.put([pending(b"new", key="k9")])
    store.write_checkpoint()
    found = [bytes(record) for record in store.find_by_key("orders", "k9")]
    store.close()
    return found


def test_keys_that_are_written_after_a_cut_are_found(tmp_path: Path) -> None:
    assert len(find_after_cut(tmp_path)) == 1


def test_6609_a_restarted_master_shows_nothing_that_was_not_confirmed(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, REPLICATED, files=HASTY)
    first, second, _ = (store.put([pending(body, queue_id=0)])[0] for body in (b"a", b"b", b"c"))
    assert store.max_offset("orders", 0) == 0
    store.confirm(second.log_offset)
    assert store.max_offset("orders", 0) == 1
    store.close()
    again = MessageStore.open(tmp_path, REPLICATED, files=HASTY)
    assert again.confirmed_log_offset == second.log_offset
    assert again.visible_log_offset == second.log_offset
    assert [body for body, _ in queue_content(again, "orders", 0)] == [b"a"]
    # 7689: offsets are counted to the log's end, so none is given twice.
    assert again.put([pending(b"d", queue_id=0)])[0].queue_offset == 3
    again.confirm(again.written_log_offset)
    assert [body for body, _ in queue_content(again, "orders", 0)] == [b"a", b"b", b"c", b"d"]
    again.close()
    assert first.log_offset == 0


def test_8239_what_is_confirmed_and_not_on_the_disk_is_not_shown_under_sync_flush(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, replace(REPLICATED, sync_flush=True), files=HASTY)
    store.put([pending(b"a", queue_id=0)])
    store.confirm(store.written_log_offset)
    assert store.max_offset("orders", 0) == 0
    store.flush_log()
    assert store.max_offset("orders", 0) == 1
    store.close()


def test_more_than_there_is_cannot_be_confirmed(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, REPLICATED, files=HASTY)
    store.put([pending(b"a", queue_id=0)])
    store.confirm(10_000)
    assert store.confirmed_log_offset == store.written_log_offset
    store.put([pending(b"b", queue_id=0)])
    assert store.max_offset("orders", 0) == 1
    store.confirm(store.written_log_offset)
    assert store.max_offset("orders", 0) == 2
    store.close()


def test_a_directory_that_was_never_replicated_is_confirmed_as_it_is(tmp_path: Path) -> None:
    fill(tmp_path, 6)
    store = MessageStore.open(tmp_path, REPLICATED, files=HASTY)
    assert store.confirmed_log_offset == store.written_log_offset
    assert store.max_offset("orders", 0) == 2
    store.close()


def confirmed_store(directory: Path) -> list[int]:
    """A replicated store of three records, two of them confirmed; where each begins."""
    store = MessageStore.open(directory, REPLICATED, files=HASTY)
    places = [store.put([pending(body, queue_id=0)])[0].log_offset for body in (b"a", b"b", b"c")]
    store.confirm(places[2])
    store.close()
    return places


def replicated_bodies(directory: Path) -> list[bytes]:
    store = MessageStore.open(directory, REPLICATED, files=HASTY)
    try:
        return [body for body, _ in queue_content(store, "orders", 0)]
    finally:
        store.close()


def tree(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != "lock"}


def test_what_is_confirmed_is_not_cut_off(tmp_path: Path) -> None:
    places = confirmed_store(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(StoreError, match=f"confirmed the log up to {places[2]}") as refused:
        cut_store(tmp_path, places[1], SMALL.segment_bytes, HASTY)
    assert refused.value.name == "CUT_REFUSED"
    assert tree(tmp_path) == before
    cut_store(tmp_path, places[2], SMALL.segment_bytes, HASTY)
    assert replicated_bodies(tmp_path) == [b"a", b"b"]


def test_a_damaged_mark_leaves_what_the_checkpoint_knows_to_be_confirmed(tmp_path: Path) -> None:
    places = confirmed_store(tmp_path)
    (tmp_path / CONFIRMED).write_bytes(b"")
    with pytest.raises(StoreError) as refused:
        cut_store(tmp_path, places[1], SMALL.segment_bytes, HASTY)
    assert refused.value.name == "CUT_REFUSED"
    assert replicated_bodies(tmp_path) == [b"a", b"b"]


def test_with_proof_that_the_logs_went_apart_confirmed_messages_are_cut_off_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    places = confirmed_store(tmp_path)
    cut_store(tmp_path, places[1], SMALL.segment_bytes, HASTY, below_confirmed=True)
    assert f"replicas had confirmed it up to {places[2]}" in caplog.text
    assert FlushMark(tmp_path / CONFIRMED, HASTY).load() == places[1]
    again = MessageStore.open(tmp_path, REPLICATED, files=HASTY)
    assert [body for body, _ in queue_content(again, "orders", 0)] == [b"a"]
    again.put([pending(b"d", queue_id=0)])
    assert [body for body, _ in queue_content(again, "orders", 0)] == [b"a"]
    again.close()


def test_a_mark_behind_the_end_of_a_log_that_a_power_failure_set_back_refuses_nothing(tmp_path: Path) -> None:
    places = confirmed_store(tmp_path)
    mark = FlushMark(tmp_path / CONFIRMED, HASTY)
    mark.reset(1 << 40)
    mark.close()
    store = MessageStore.open(tmp_path, SMALL, files=HASTY)
    end = store.written_log_offset
    store.close()
    cut_store(tmp_path, end, SMALL.segment_bytes, HASTY)
    assert replicated_bodies(tmp_path) == [b"a", b"b", b"c"]
    assert places[0] == 0


def test_a_directory_that_lacks_something_is_not_cut(tmp_path: Path) -> None:
    places = confirmed_store(tmp_path)
    (tmp_path / CONFIRMED).unlink()
    with pytest.raises(StartRefused) as refused:
        cut_store(tmp_path, places[2], SMALL.segment_bytes, HASTY)
    assert refused.value.name == "DATA_MISSING"


def interrupted_cut(directory: Path) -> int:
    """A store of fourteen records, where the intent of a cut is on the disk and nothing is done; where it cuts."""
    cut_at = fill(directory / "data", 14)[4]
    shutil.copytree(directory / "data", directory / "traced")
    traced = TracedFiles(directory / "traced")
    cut_store(directory / "traced", cut_at, SMALL.segment_bytes, traced)
    for steps in range(len(traced.steps)):
        lay_out(crash_state(traced, lambda versions, _: versions - 1, steps), directory / "interrupted")
        if {"cut-to", "cut-to.bak"} <= {path.name for path in (directory / "interrupted").iterdir()}:
            return cut_at
    raise AssertionError("the cut noted no intent")


def test_one_copy_of_an_intent_is_enough_and_without_both_the_cut_did_not_begin(tmp_path: Path) -> None:
    interrupted_cut(tmp_path)
    fill(tmp_path / "expected", 4)
    whole, expected = content(tmp_path / "data"), content(tmp_path / "expected")
    length = (tmp_path / "interrupted" / "cut-to").stat().st_size
    for name in ("cut-to", "cut-to.bak"):
        for kept in range(0, length, 40):
            torn = shutil.copytree(tmp_path / "interrupted", tmp_path / "torn")
            (torn / name).write_bytes((torn / name).read_bytes()[:kept])
            assert content(torn) == expected
            shutil.rmtree(torn)
    for name in ("cut-to", "cut-to.bak"):
        (tmp_path / "interrupted" / name).unlink()
    assert content(tmp_path / "interrupted") == whole


def test_an_intent_damaged_in_both_copies_refuses_the_start_and_changes_nothing(tmp_path: Path) -> None:
    interrupted_cut(tmp_path)
    for name in ("cut-to", "cut-to.bak"):
        (tmp_path / "interrupted" / name).write_bytes(b"")
    before = tree(tmp_path / "interrupted")
    with pytest.raises(StoreError) as refused:
        content(tmp_path / "interrupted")
    assert refused.value.name == "STORE_FORMAT"
    assert tree(tmp_path / "interrupted") == before
