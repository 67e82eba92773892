"""Versions of a dimension table: complete or not there, one that counts, none removed that anyone may want."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.streams.dimension.hit_counts import COUNTS_EVERY_S, HitCounts, LookupHits
from millstream.streams.dimension.pins import BatchPins
from millstream.streams.dimension.versions import MAX_VERSIONS, Loaded, TableNote, VersionStore
from millstream.streams.errors import JobError

NOTE = TableNote("assets", "jdbc", "jdbc:sqlite:/data/assets.db assets", ("id", "name"))


class _Killed(BaseException):
    """The process ends here."""


def fill(directory: Path) -> Loaded:
    (directory / "rows").write_text("rows")
    return Loaded(3, 4)


def loaded(store: VersionStore, times: int = 1) -> int:
    number = 0
    for _ in range(times):
        head = store.load(fill)
        assert head is not None
        number = head.version
    return number


def current(store: VersionStore) -> int:
    head = store.current()
    return 0 if head is None else head.version


def numbers(store: VersionStore) -> list[int]:
    return [head.version for head in store.versions()]


def test_a_table_counts_from_its_first_load_on(tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "assets", clock_ms=iter((1000, 1250)).__next__)
    assert store.current() is None
    store.describe(NOTE)
    head = store.load(fill)
    assert head is not None
    assert (head.version, head.rows, head.size_bytes, head.time_ms, head.load_ms) == (1, 3, 4, 1250, 250)
    assert VersionStore(tmp_path / "assets").current() == head
    assert VersionStore(tmp_path / "assets").note() == NOTE


def test_a_load_that_fails_leaves_the_version_before_it_and_says_why(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    loaded(store)

    def fails(directory: Path) -> Loaded:
        (directory / "rows").write_text("half")
        raise JobError("JOB_FAILED", "The database does not answer.")

    with pytest.raises(JobError, match="does not answer"):
        store.load(fails)
    trouble = store.load_failure()
    assert trouble is not None
    assert "does not answer" in trouble.words
    assert numbers(store) == [1]
    assert current(store) == 1
    loaded(store)
    assert store.load_failure() is None


def killed_after(steps: int, real: Callable[..., Any]) -> Callable[..., Any]:
    """An operation of paths that ends the process when it was done so often."""
    left = iter(range(steps))

    def operation(path: Path, *arguments: Any, **named: Any) -> Any:
        if next(left, None) is None:
            raise _Killed
        return real(path, *arguments, **named)

    return operation


@pytest.mark.parametrize("operation", ["mkdir", "rename", "replace"])
def test_a_kill_between_any_two_steps_leaves_the_old_version_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    for step in range(4):
        store = VersionStore(tmp_path / f"{operation}{step}")
        loaded(store)
        with monkeypatch.context() as patch, contextlib.suppress(_Killed):
            patch.setattr(Path, operation, killed_after(step, getattr(Path, operation)))
            store.load(fill)
        again = VersionStore(store.directory)
        counts = current(again)
        assert counts in (1, 2)
        assert (store.directory / "versions" / str(counts) / "rows").read_text() == "rows"
        # A number is never given twice.
        assert loaded(again) > counts


def test_only_the_newest_versions_stay(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    assert loaded(store, MAX_VERSIONS + 3) == MAX_VERSIONS + 3
    assert numbers(store) == [*range(4, MAX_VERSIONS + 4)]


def test_a_version_stays_while_a_reader_holds_it(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    loaded(store)
    held = VersionStore(tmp_path).lease(1)
    assert held is not None
    assert held.head.version == 1
    loaded(store, MAX_VERSIONS + 2)
    assert 1 in numbers(store)
    held.release()
    assert 1 in store.forget()
    assert store.lease(1) is None


def test_a_micro_batch_has_one_version_also_when_it_is_repeated(tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "store")
    loaded(store)
    pins = BatchPins(tmp_path / "pins", store, "job")
    assert pins.version(0).version == 1
    loaded(store)
    assert BatchPins(tmp_path / "pins", store, "job").version(0).version == 1
    assert pins.version(1).version == 2


def test_a_version_of_the_last_two_micro_batches_stays_and_an_older_one_goes(tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "store")
    loaded(store)
    pins = BatchPins(tmp_path / "pins", store, "job")
    pins.version(0)
    loaded(store, MAX_VERSIONS + 1)
    assert 1 in numbers(store)
    pins.version(1)
    loaded(store)
    assert 1 in numbers(store), "micro-batch 0 may be repeated still"
    pins.version(2)
    loaded(store)
    assert 1 not in numbers(store)
    assert set(pins.batches()) == {1, 2}


def test_a_job_whose_notes_were_removed_holds_no_version(tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "store")
    loaded(store)
    BatchPins(tmp_path / "pins", store, "job").version(0)
    assert store.versions_by_job() == {"job": (1,)}
    shutil.rmtree(tmp_path / "pins")
    assert loaded(store, MAX_VERSIONS) == MAX_VERSIONS + 1
    assert 1 not in numbers(store)


def test_a_version_that_is_gone_is_told_and_never_replaced_by_another_one(tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "store")
    loaded(store)
    BatchPins(tmp_path / "pins", store, "job").version(7)
    assert store.drop()
    loaded(store)
    with pytest.raises(JobError, match=r"version 1 .* is gone"):
        BatchPins(tmp_path / "pins", store, "job").version(7)


def test_a_table_without_any_version_cannot_be_pinned(tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "store")
    store.describe(NOTE)
    with pytest.raises(JobError, match="never loaded"):
        BatchPins(tmp_path / "pins", store, "job").version(0)


def test_all_threads_of_a_micro_batch_agree_while_versions_come(tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "store")
    loaded(store)
    seen: dict[int, set[int]] = {batch: set() for batch in range(20)}

    together = threading.Barrier(4)

    def ask() -> None:
        for batch in range(20):
            together.wait()
            seen[batch].add(
                BatchPins(tmp_path / "pins", VersionStore(tmp_path / "store"), "job").version(batch).version
            )

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        loaded(store)
    assert [len(versions) for versions in seen.values()] == [1] * 20


def test_who_waited_for_a_load_does_not_load_again(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    loaded(store, 2)
    assert store.load(fill, newer_than=1) is None
    assert store.load(fill, newer_than=2) == store.current()
    assert current(store) == 3


def test_a_table_that_is_read_is_not_dropped(tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "assets")
    loaded(store)
    held = store.lease(1)
    assert held is not None
    assert not store.drop()
    held.release()
    assert store.drop()
    assert not (tmp_path / "assets").exists()


def test_hits_of_all_processes_add_up(tmp_path: Path) -> None:
    now = [0.0]
    first, second = HitCounts(tmp_path, clock=lambda: now[0]), HitCounts(tmp_path, clock=lambda: now[0])
    first.add(10, 4)
    second.add(5, 5)
    first.add(10, 0)
    now[0] += COUNTS_EVERY_S
    first.add(5, 0)
    assert HitCounts.read(tmp_path) == LookupHits(30, 9)
    assert HitCounts.read(tmp_path).rate == 0.3
    assert LookupHits().rate is None
