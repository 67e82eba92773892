"""Planted bugs: each must turn a programme red, or its green means nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crash.catalogue import run_programme
from crash.programme import Size
from crash.raft_group import SimulatedDisk
from crash.traced_files import TracedFiles
from msgspec import structs

from millstream.consensus.raft import Raft
from millstream.consensus.raft_messages import AppendEntries, VoteRequest
from millstream.consensus.raft_storage import PersistedState
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


def _forget_votes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "save_vote", lambda disk, hard_state: None)


def _vote_twice_in_a_term(patch: pytest.MonkeyPatch) -> None:
    set_hard_state = Raft._set_hard_state
    patch.setattr(Raft, "_set_hard_state", lambda raft, term, voted_for: set_hard_state(raft, term, None))


def _vote_for_who_has_less(patch: pytest.MonkeyPatch) -> None:
    answer = Raft._answer_vote

    def be_lenient(raft: Raft, sender: str, asked: VoteRequest, now_ms: int) -> None:
        answer(raft, sender, structs.replace(asked, last_term=1 << 40), now_ms)

    patch.setattr(Raft, "_answer_vote", be_lenient)


def _take_entries_behind_others(patch: pytest.MonkeyPatch) -> None:
    take = Raft._take_entries

    def be_lenient(raft: Raft, sender: str, message: AppendEntries, now_ms: int) -> None:
        term = raft.log.term_at(message.previous_index)
        if term is not None and message.previous_index > raft.log.base_index:
            message = structs.replace(message, previous_term=term)
        take(raft, sender, message, now_ms)

    patch.setattr(Raft, "_take_entries", be_lenient)


def _read_without_a_quorum(patch: pytest.MonkeyPatch) -> None:
    def end_all(raft: Raft) -> None:
        raft._output.ready_reads += [read.number for read in raft._reads]
        raft._reads = []

    patch.setattr(Raft, "_end_reads", end_all)
    patch.setattr(Raft, "_check_quorum", lambda raft, now_ms: None)


def _lose_the_last_entry(patch: pytest.MonkeyPatch) -> None:
    load = SimulatedDisk.load

    def forget(disk: SimulatedDisk) -> PersistedState:
        found = load(disk)
        del disk._entries[-1:], found.log.entries[-1:]
        return found

    patch.setattr(SimulatedDisk, "load", forget)


@pytest.mark.parametrize(
    ("programme", "plant"),
    [
        ("C1", _forget_votes),
        ("C1", _vote_twice_in_a_term),
        ("C1", _vote_for_who_has_less),
        ("C1", _take_entries_behind_others),
        ("C1", _read_without_a_quorum),
        ("C1", _lose_the_last_entry),
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
    assert run_programme(programme, seed=3, size=Size.CI, keep=tmp_path, stops_at_failure=True).failures
