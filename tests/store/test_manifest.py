"""What a directory must hold: noted after it is there, forgotten before it goes, over a crash at every step."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash.file_twins import Died, HastyFiles, MortalFiles
from store_samples import SMALL, pending, segments

from millstream.model.clock import ManualClock
from millstream.store.damage.integrity import missing_ranges
from millstream.store.manifest import StoreManifest
from millstream.store.message_store import MessageStore
from millstream.store.retention import RetentionPolicy
from millstream.store.snapshot import Snapshot

STEPS = 45
"""More than two saves and their notes take."""


def test_a_crash_at_any_step_leaves_every_saved_part_noted_and_no_note_without_its_part(scratch: Path) -> None:
    deaths = 0
    for undone in (False, True):
        for life in range(1, STEPS):
            directory = scratch / f"{undone}-{life}"
            directory.mkdir()
            saved: list[str] = []
            try:
                save_parts(directory, MortalFiles(life, undone), saved)
            except Died:
                deaths += 1
            noted = StoreManifest(directory).load()
            parts = noted.parts if noted is not None else frozenset()
            assert parts.issuperset(saved)
            assert all(Snapshot(directory / part).load() == b"content" for part in parts)
            save_parts(directory, HastyFiles(), saved)
    assert STEPS < deaths < 2 * (STEPS - 1), "the last lives are long enough"


def save_parts(directory: Path, files: HastyFiles, saved: list[str]) -> None:
    manifest = StoreManifest(directory, files)
    for part in ("a", "b"):
        Snapshot(directory / part, files, on_saved=manifest.noting(part)).save(b"content")
        saved.append(part)


class WatchedFiles(HastyFiles):
    """Looks, before a segment goes, whether the manifest asks for it."""

    removed = 0

    def remove(self, path: Path) -> None:
        if path.parent.name == "commitlog":
            noted = StoreManifest(path.parent.parent).load()
            assert noted is not None
            assert noted.log_start is not None
            assert noted.log_start > int(path.name)
            self.removed += 1
        super().remove(path)


def test_retention_notes_where_the_log_begins_before_a_segment_goes(scratch: Path) -> None:
    files, clock = WatchedFiles(), ManualClock()
    store = MessageStore.open(scratch / "store", SMALL, clock=clock, files=files)
    for _ in range(60):
        store.put([pending(b"x" * 100)])
    store.write_checkpoint()
    store.retention = RetentionPolicy(keep_ms=1)
    clock.advance_ms(10)
    removed = store.retain().removed_segments
    assert (removed > 2, files.removed) == (True, removed)
    store.close()
    assert int(segments(scratch / "store")[0].name) > 0
    MessageStore.open(scratch / "store", SMALL, clock=clock, files=files).close()


@pytest.mark.parametrize(
    ("there", "start", "end", "missing"),
    [
        ([], 0, 0, []),
        ([], 0, 10, [(0, 10)]),
        ([(0, 10)], 0, 10, []),
        ([(0, 10)], 0, 12, [(10, 12)]),
        ([(0, 10), (20, 30)], 0, 30, [(10, 20)]),
        ([(20, 30), (0, 10)], 0, 15, [(10, 15)]),
        ([(10, 20)], 5, 20, [(5, 10)]),
        ([(10, 20)], 15, 20, []),
        ([(0, 10), (5, 30), (12, 13)], 0, 40, [(30, 40)]),
        ([(30, 40)], 0, 20, [(0, 20)]),
    ],
)
def test_what_no_file_has_is_missing(
    there: list[tuple[int, int]], start: int, end: int, missing: list[tuple[int, int]]
) -> None:
    assert missing_ranges(there, start, end) == missing
