"""The files of the key index: made, merged, trimmed, cut, lost, damaged, of another version."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from crash.disk_model import random_choice
from crash.file_twins import FailingFiles, HastyFiles, RecordingFiles
from crash.traced_files import TracedFiles, crash_state, lay_out
from key_index_samples import SMALL_SEGMENTS, TINY_RUNS, IndexedStore, keyed

from millstream.model.errors import StoreError
from millstream.store.file_head import file_head
from millstream.store.files import FileLayer
from millstream.store.index.key_index import KeyIndexOptions

KEYS = ("a", "b", "same")


def filled(directory: Path, count: int = 3, files: FileLayer | None = None) -> IndexedStore:
    """A store of `count` messages under one run."""
    one_run = KeyIndexOptions(run_log_bytes=2**30, fan_in=3)
    indexed = IndexedStore(directory / "store", options=one_run, files=files)
    for number in range(count):
        indexed.put(keyed(f"{KEYS[number % 2]} same", f"u{number}"))
    assert indexed.extend()
    return indexed


def grown(indexed: IndexedStore, runs: int) -> None:
    """Put one message and make one run of it, several times."""
    for number in range(runs):
        indexed.put(keyed(f"g{number} same"))
        assert indexed.extend()


def reopened_and_right(indexed: IndexedStore) -> None:
    """Open the index again, look at its answers, let it mend itself and look again."""
    indexed.reopen_index()
    indexed.check()
    assert indexed.extend()
    indexed.check()
    assert indexed.damaged_runs() == 0
    indexed.reopen_index()
    assert indexed.index.covered_log_offset == indexed.end
    indexed.check()


def test_a_covered_log_is_not_read_again_after_a_start(scratch: Path) -> None:
    indexed = filled(scratch, 20)
    indexed.reopen_index()
    assert indexed.index.covered_log_offset == indexed.end
    assert indexed.extend()
    assert indexed.index.file_count == 1
    indexed.check()


def test_a_run_torn_at_any_byte_is_made_again(scratch: Path) -> None:
    indexed = filled(scratch)
    (path,) = indexed.run_files()
    whole = path.read_bytes()
    for size in range(len(whole)):
        for behind in (b"", bytes(len(whole) - size)):
            torn = whole[:size] + behind
            if torn != whole:
                path.write_bytes(torn)
                reopened_and_right(indexed)
                assert path.read_bytes() == whole


@pytest.mark.long
def test_a_run_with_any_bit_flipped_gives_no_wrong_answer_and_is_made_again(scratch: Path) -> None:
    indexed = filled(scratch)
    (path,) = indexed.run_files()
    whole = path.read_bytes()
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        indexed.reopen_index()
        if bit % 16 == 0:
            assert indexed.damaged_runs() == indexed.index.file_count
        indexed.check()
        assert indexed.extend()
        assert path.read_bytes() == whole


def test_bytes_behind_the_end_of_a_run_are_damage(scratch: Path) -> None:
    indexed = filled(scratch)
    (path,) = indexed.run_files()
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0")
    reopened_and_right(indexed)
    assert path.read_bytes() == whole


def test_any_damaged_block_of_a_large_run_gives_no_wrong_answer(scratch: Path) -> None:
    indexed = filled(scratch, 1000)
    (path,) = indexed.run_files()
    whole = path.read_bytes()
    assert len(whole) > 10 * 4084
    for position in range(2000, len(whole), 4084):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 8]) + whole[position + 1 :])
        indexed.reopen_index()
        assert indexed.find("same", count=64) == indexed.expected("same", count=64)
        for key in ("u0", "u500", "u999", "missing"):
            assert indexed.find(key) == indexed.expected(key)
        assert indexed.damaged_runs() == 1


def test_a_later_version_is_refused_and_nothing_is_touched(scratch: Path) -> None:
    indexed = filled(scratch)
    indexed.put(keyed("more"))
    assert indexed.extend()
    damaged, later = indexed.run_files()
    damaged.write_bytes(b"damaged")
    later.write_bytes(file_head(b"MSKEYRUN", 2) + b"what a later release may write")
    partial = damaged.with_name(damaged.name + ".tmp")
    partial.write_bytes(b"partial")
    before = {path: path.read_bytes() for path in indexed.runs.iterdir()}
    with pytest.raises(StoreError, match="has the format 2, not 1") as refusal:
        indexed.open_index()
    assert refusal.value.name == "STORE_FORMAT"
    assert {path: path.read_bytes() for path in indexed.runs.iterdir()} == before


def test_files_of_others_are_left_alone(scratch: Path) -> None:
    indexed = filled(scratch)
    for name in ("notes", "notes.tmp", "0-1"):
        (indexed.runs / name).write_bytes(b"mine")
    reopened_and_right(indexed)
    assert (indexed.runs / "notes.tmp").read_bytes() == b"mine"
    assert len(list(indexed.runs.iterdir())) == 4


def test_a_lost_run_is_made_again_by_an_extend_to_anywhere(scratch: Path) -> None:
    indexed = filled(scratch)
    grown(indexed, 1)
    indexed.run_files()[0].unlink()
    assert indexed.damaged_runs() == 1
    assert indexed.extend(0)
    assert indexed.index.covered_log_offset == indexed.end
    indexed.check()


def test_a_run_that_was_not_finished_is_removed_at_a_start(scratch: Path) -> None:
    indexed = filled(scratch)
    partial = indexed.run_files()[0].with_name(f"{0:020}-{999:020}.tmp")
    partial.write_bytes(b"MSKEYRUN")
    reopened_and_right(indexed)
    assert not partial.exists()


def test_lost_files_are_made_again(scratch: Path) -> None:
    indexed = IndexedStore(scratch / "store")
    grown(indexed, 20)
    for path in indexed.run_files()[:2]:
        path.unlink()
    reopened_and_right(indexed)
    for path in indexed.run_files():
        path.unlink()
    indexed.check()
    assert indexed.extend()
    indexed.check()
    assert indexed.damaged_runs() == 0


def test_an_index_that_has_to_be_made_again_comes_in_pieces(scratch: Path) -> None:
    indexed = IndexedStore(scratch / "store")
    for number in range(40):
        indexed.put(keyed(f"k{number}"))
    covered = [indexed.index.covered_log_offset]
    while not indexed.index.extend(indexed.end, max_log_bytes=1500):
        covered.append(indexed.index.covered_log_offset)
        assert 0 < covered[-1] - covered[-2] <= 1500 + 700 + 200
        indexed.check()
    assert len(covered) > 3
    indexed.check()


def test_merges_keep_the_number_of_files_small(scratch: Path) -> None:
    indexed = IndexedStore(scratch / "store", options=KeyIndexOptions(fan_in=3))
    for runs in range(1, 82):
        grown(indexed, 1)
        assert indexed.index.file_count <= 2 * 5
        if runs in (3, 9, 27, 81):
            assert indexed.index.file_count == 1
            indexed.check()
    assert len(indexed.run_files()) == 1


def test_runs_with_a_gap_between_them_are_not_merged(scratch: Path) -> None:
    indexed = IndexedStore(scratch / "store", options=KeyIndexOptions(fan_in=100))
    grown(indexed, 4)
    lost = indexed.run_files()[1]
    lost.unlink()
    indexed.options = KeyIndexOptions(fan_in=3)
    indexed.reopen_index()
    assert not indexed.index.extend(indexed.end, max_log_bytes=0)
    assert indexed.index.file_count == 3
    indexed.check()
    assert indexed.extend()
    assert indexed.index.file_count == 2
    indexed.check()


def test_no_merged_run_covers_more_of_the_log_than_allowed(scratch: Path) -> None:
    options = KeyIndexOptions(fan_in=2, max_merged_log_bytes=1500)
    indexed = IndexedStore(scratch / "store", options=options)
    grown(indexed, 60)
    sizes = [int(path.name[21:]) - int(path.name[:20]) for path in indexed.run_files()]
    assert max(sizes) <= 1500
    assert sum(sizes) == indexed.end
    indexed.check()


def large_runs(directory: Path, files: FileLayer | None = None) -> IndexedStore:
    """Two runs of many blocks, to be merged by the third one a few blocks at a time."""
    options = KeyIndexOptions(fan_in=3, min_merged_entries=1)
    indexed = IndexedStore(directory / "store", options=options, files=files)
    for number in range(2):
        indexed.put(*(keyed(f"r{number}-{each} same") for each in range(3000)))
        assert indexed.extend()
    return indexed


def test_a_merge_goes_on_bit_by_bit_while_the_log_grows(scratch: Path) -> None:
    indexed = large_runs(scratch)
    steps = 0
    while not any(run.span.level for run in indexed.index._runs):
        indexed.put(keyed(f"more{steps}"))
        assert indexed.extend()
        steps += 1
        for key in ("r0-0", "r1-2999", "same", "more0", "missing"):
            assert indexed.find(key) == indexed.expected(key)
    assert steps > 2


@pytest.mark.parametrize(
    "during",
    [
        lambda indexed: indexed.reopen_index(),
        lambda indexed: indexed.index.trim(indexed.stored[3000].log_offset),
        lambda indexed: indexed.index.cut(indexed.stored[4000].log_offset),
    ],
    ids=["restart", "trim", "cut"],
)
def test_a_merge_that_is_given_up_leaves_the_runs_valid(scratch: Path, during: Callable[[IndexedStore], None]) -> None:
    indexed = large_runs(scratch)
    indexed.put(keyed("third"))
    assert indexed.extend()
    assert len(list(indexed.runs.glob("*.tmp"))) == 1
    start = indexed.stored[3000].log_offset
    during(indexed)
    assert not list(indexed.runs.glob("*.tmp"))
    for key in ("r1-0", "r1-2999", "third", "missing"):
        assert indexed.find(key) == indexed.expected(key)
    assert indexed.extend()
    assert min(int(path.name[:20]) for path in indexed.run_files()) in (0, start)
    for key in ("r1-0", "r1-2999", "third", "missing"):
        assert indexed.find(key) == indexed.expected(key)


def test_a_run_found_damaged_by_a_merge_is_made_again(scratch: Path) -> None:
    indexed = large_runs(scratch)
    path = indexed.run_files()[0]
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    for number in range(12):
        indexed.put(keyed(f"more{number}"))
        indexed.extend()
    assert indexed.damaged_runs() == 0
    for key in ("r0-0", "r0-2999", "r1-0", "same", "more0", "more11"):
        assert indexed.find(key) == indexed.expected(key)


def test_a_run_that_is_gone_when_it_is_to_be_merged_is_made_again(scratch: Path) -> None:
    indexed = IndexedStore(scratch / "store")
    grown(indexed, 2)
    indexed.run_files()[0].unlink()
    grown(indexed, 2)
    assert indexed.damaged_runs() == 0
    assert int(indexed.run_files()[0].name[:20]) == 0
    indexed.check()


def test_runs_and_their_merged_run_side_by_side_count_once(scratch: Path) -> None:
    indexed = IndexedStore(scratch / "store")
    grown(indexed, 2)
    parts = {path: path.read_bytes() for path in indexed.run_files()}
    grown(indexed, 1)
    third = indexed.run_files()
    assert len(third) == 1
    for path, content in parts.items():
        path.write_bytes(content)
    indexed.reopen_index()
    assert indexed.run_files() == third
    indexed.check()


def test_runs_below_the_start_of_the_log_are_removed(scratch: Path) -> None:
    indexed = IndexedStore(scratch / "store")
    grown(indexed, 50)
    for segment in indexed.store._log.segments[1:4]:
        indexed.index.trim(segment.start)
        indexed.stored = [each for each in indexed.stored if each.log_offset >= segment.start]
        assert all(int(path.name[21:]) > segment.start for path in indexed.run_files())
        assert indexed.find("same") == indexed.expected("same")
        assert indexed.find("g0") == []
        assert indexed.extend()
        assert indexed.find("same") == indexed.expected("same")


def test_what_retention_removed_is_not_answered(scratch: Path) -> None:
    indexed = IndexedStore(scratch / "store")
    grown(indexed, 50)
    indexed.remove_oldest_segment()
    indexed.check()
    indexed.reopen_index()
    assert indexed.extend()
    indexed.check()
    assert indexed.find("g0") == []


def test_runs_behind_the_end_of_a_cut_log_are_made_again(scratch: Path) -> None:
    indexed = IndexedStore(scratch / "store", options=TINY_RUNS)
    grown(indexed, 50)
    cut = indexed.stored[20].log_offset
    indexed.store._log.cut(cut)
    indexed.index.cut(cut)
    indexed.stored = indexed.stored[:20]
    indexed.check()
    assert indexed.index.covered_log_offset <= cut
    assert indexed.extend(cut)
    assert indexed.index.covered_log_offset == cut
    indexed.check()


def test_runs_behind_the_end_of_a_cut_log_are_gone_for_good(scratch: Path) -> None:
    files = RecordingFiles()
    indexed = IndexedStore(scratch / "store", files=files)
    grown(indexed, 10)
    files.operations.clear()
    indexed.index.cut(indexed.stored[5].log_offset)
    assert [(each.name, each.path) for each in files.operations] == [("sync directory", indexed.runs)]


@pytest.mark.parametrize("call", ["pwrite", "sync"])
def test_a_full_disk_costs_no_answer_and_leaves_no_file(scratch: Path, call: str) -> None:
    files = FailingFiles()
    indexed = IndexedStore(scratch / "store", files=files)
    grown(indexed, 2)
    indexed.put(keyed("third same"))
    before = sorted(indexed.runs.iterdir())
    files.errors[call] = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        indexed.extend()
    assert sorted(indexed.runs.iterdir()) == before
    indexed.check()
    del files.errors[call]
    assert indexed.extend()
    assert indexed.index.file_count == 1
    indexed.check()


def test_a_full_disk_during_a_merge_leaves_the_runs_valid(scratch: Path) -> None:
    files = FailingFiles()
    indexed = large_runs(scratch, files)
    indexed.put(keyed("third"))
    assert indexed.extend()
    files.errors["pwrite"] = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        indexed.extend()
    assert not list(indexed.runs.glob("*.tmp"))
    del files.errors["pwrite"]
    for key in ("r0-0", "r1-2999", "third", "same"):
        assert indexed.find(key) == indexed.expected(key)


@pytest.mark.parametrize("seed", range(5))
def test_a_power_failure_after_an_extend_takes_nothing_back(scratch: Path, seed: int) -> None:
    files, choose = TracedFiles(scratch / "store"), random.Random(seed)
    indexed = IndexedStore(scratch / "store", files=files)
    grown(indexed, 20)
    indexed.store.flush()
    lay_out(crash_state(files, random_choice(choose, choose.random())), scratch / "after")
    before = [path.name for path in indexed.run_files()]
    survivor = IndexedStore(scratch / "after")
    survivor.stored = indexed.stored
    assert survivor.end == indexed.end
    assert [path.name for path in survivor.run_files()] == before
    assert survivor.damaged_runs() == 0
    assert survivor.index.covered_log_offset == survivor.end
    survivor.check()


def test_a_run_is_synced_before_its_name_and_its_name_before_older_runs_go(scratch: Path) -> None:
    files = RecordingFiles()
    indexed = IndexedStore(scratch / "store", files=files)
    grown(indexed, 1)
    operations = [each for each in files.operations if each.path == indexed.runs or each.path.parent == indexed.runs]
    assert [each.name for each in operations][-3:] == ["sync", "rename", "sync directory"]
    written = [each.name for each in operations].index("sync")
    assert "pwrite" in [each.name for each in operations[:written]]
    assert "pwrite" not in [each.name for each in operations[written:]]


class UnreadableRuns(HastyFiles):
    """Runs that give an error of the disk when they are read."""

    is_on = False

    def pread(self, descriptor: int, length: int, position: int) -> bytes:
        if self.is_on:
            raise OSError(errno.EIO, "Input/output error")
        return super().pread(descriptor, length, position)


def test_a_run_that_the_disk_does_not_give_is_replaced_by_the_log(scratch: Path) -> None:
    files = UnreadableRuns()
    indexed = filled(scratch, files=files)
    files.is_on = True
    indexed.check()
    files.is_on = False
    assert indexed.extend()
    indexed.check()


class BusyFiles(HastyFiles):
    """Calls `before_open` once, before a file is opened, and `after_discard` whenever one was discarded."""

    before_open: Callable[[], object] | None = None
    after_discard: Callable[[], object] | None = None

    def open(self, path: Path, *, create: bool = False) -> int:
        before, self.before_open = self.before_open, None
        if before is not None:
            before()
        return super().open(path, create=create)

    def discard(self, path: Path) -> None:
        super().discard(path)
        if self.after_discard is not None:
            self.after_discard()


def test_a_query_whose_runs_are_merged_under_it_begins_again(scratch: Path) -> None:
    files = BusyFiles()
    indexed = IndexedStore(scratch / "store", files=files)
    grown(indexed, 2)
    offsets = indexed.put(keyed("third same"))
    runs = list(indexed.index._runs)

    def extend() -> None:
        assert indexed.extend()
        assert indexed.index.file_count == 1

    files.before_open = extend
    assert indexed.find("third") == offsets
    assert not any(run.is_damaged for run in runs)


def test_a_query_between_the_end_of_a_merge_and_its_clearing_up_finds_all(scratch: Path) -> None:
    files = BusyFiles()
    indexed = IndexedStore(scratch / "store", files=files)
    grown(indexed, 2)
    indexed.put(keyed("third same"))
    runs = list(indexed.index._runs)
    asked = []

    def ask() -> None:
        asked.append(indexed.find("same"))

    files.after_discard = ask
    assert indexed.extend()
    assert asked == [indexed.expected("same")] * 3
    assert not any(run.is_damaged for run in runs)


def test_an_empty_log_has_an_empty_index(scratch: Path) -> None:
    indexed = IndexedStore(scratch / "store", store_options=SMALL_SEGMENTS)
    assert indexed.extend()
    assert indexed.find("a") == []
    assert indexed.run_files() == []
    indexed.reopen_index()
    assert indexed.index.covered_log_offset == 0


def test_records_without_keys_are_covered_as_well(scratch: Path) -> None:
    indexed = IndexedStore(scratch / "store")
    for _ in range(10):
        indexed.put(keyed())
        assert indexed.extend()
    assert indexed.index.covered_log_offset == indexed.end
    (offset,) = indexed.put(keyed("k"))
    assert indexed.extend()
    assert indexed.find("k") == [offset]
    reopened_and_right(indexed)
