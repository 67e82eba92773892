"""Planted bugs: each must turn a programme red, or its green means nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crash.catalogue import run_programme
from crash.programme import Size
from crash.traced_files import TracedFiles

from millstream.store import snapshot
from millstream.store.appender import Appender
from millstream.store.commit_log import CommitLog
from millstream.store.write_batch import AppendedRecord

Plant = Callable[[pytest.MonkeyPatch], None]


def _skip_the_sync_of_the_log(patch: pytest.MonkeyPatch) -> None:
    def take_without_sync(log: CommitLog, segments: Any) -> None:
        return None

    patch.setattr(CommitLog, "sync", take_without_sync)


def _skip_the_sync_of_directories(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TracedFiles, "sync_directory", lambda files, path: None)


def _skip_the_sync_of_replaced_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TracedFiles, "fsync", lambda files, descriptor: None)


def _skip_the_checksum_of_records(patch: pytest.MonkeyPatch) -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("millstream.store") and hasattr(module, "verify_record"):
            patch.setattr(module, "verify_record", lambda record: True)


def _forget_the_checksum_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshot, "crc32", lambda content: 0)


def _acknowledge_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Appender, "_note_stored", lambda appender, stored: appender._answer(stored))


def _acknowledge_before_the_write(patch: pytest.MonkeyPatch) -> None:
    write = Appender._write

    def answer_and_write_later(appender: Appender, arrived: Any) -> None:
        for waiting in arrived:
            waiting.appended = [AppendedRecord(0, 0, 0, 0)] * len(waiting.records)
            waiting.resolve()
        appender._loop.call_later(2.0, write, appender, arrived)

    patch.setattr(Appender, "_write", answer_and_write_later)


@pytest.mark.parametrize(
    ("programme", "plant"),
    [
        ("S3", _skip_the_sync_of_the_log),
        ("S3", _skip_the_sync_of_directories),
        ("S3", _skip_the_sync_of_replaced_files),
        ("S2", _skip_the_checksum_of_records),
        ("S2", _forget_the_checksum_of_snapshots),
        ("S6", _acknowledge_before_the_flush),
        ("S6", _acknowledge_before_the_write),
        ("S6", _skip_the_sync_of_the_log),
    ],
)
def test_a_planted_bug_turns_a_programme_red(
    programme: str, plant: Plant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch)
    assert run_programme(programme, seed=7, size=Size.CI, keep=tmp_path, stops_at_failure=True).failures
