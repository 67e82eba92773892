"""Offsets of groups: what is committed, what is saved, what a lost log end does to them."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest
from state_bench import FileLog, load_table

from millstream.broker.queues.offsets import MAX_WRITTEN_AT_ONCE, OffsetTable
from millstream.broker.state.document import encode_document
from millstream.model.errors import StoreError
from millstream.store.snapshot import Snapshot


def open_table(directory: Path, *, end: int | None = 1_000) -> OffsetTable:
    table = OffsetTable(Snapshot(directory / "offsets.json"))
    load_table(table.table, directory)
    table.limit(lambda topic, queue_id: end)
    return table


def test_a_group_that_did_nothing_has_no_offset(tmp_path: Path) -> None:
    assert open_table(tmp_path).committed_offset("g", "t", 0) is None


def test_a_committed_offset_may_go_back_and_negative_ones_are_passed_over(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    table.commit("g", "t", 0, 7)
    table.commit("g", "t", 0, 3)
    table.commit("g", "t", 0, -1)
    assert table.committed_offset("g", "t", 0) == 3
    assert table.committed_offset("g", "t", 1) is None


def test_committed_offsets_survive_a_restart(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    table.commit("g", "t", 0, 7)
    table.write_changes()
    assert open_table(tmp_path).committed_offset("g", "t", 0) == 7


def test_only_a_change_asks_for_a_save(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    assert not table.is_changed
    table.commit("g", "t", 0, 7)
    assert table.is_changed
    table.write_changes()
    table.commit("g", "t", 0, 7)
    assert not table.is_changed
    ledger = table.open_ledger("g", "t", 1, fifo=False, first_offset=0)
    table.write_changes()
    assert not table.is_changed
    ledger.deliver(0, 1, 1)
    assert table.is_changed


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    table.commit("g", "t", 0, 7)
    table.commit("g", "t", 1, 7)
    table.write_changes()
    table.commit("g", "t", 1, 8)
    table.write_changes()
    assert [change.key for change in FileLog(tmp_path).changes()] == ["g\tt\t0", "g\tt\t1", "g\tt\t1"]


def test_a_group_that_is_forgotten_is_forgotten_after_a_restart(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    table.commit("g", "t", 0, 7)
    table.write_changes()
    table.forget(group="g")
    table.write_changes()
    assert open_table(tmp_path).committed_offset("g", "t", 0) is None


def many_queues(directory: Path) -> OffsetTable:
    table = open_table(directory)
    for queue_id in range(3 * MAX_WRITTEN_AT_ONCE):
        table.commit("g", "t", queue_id, 7)
    return table


async def test_while_many_queues_are_saved_others_get_their_turn(tmp_path: Path) -> None:
    table = many_queues(tmp_path)
    saving = asyncio.create_task(table.write_changes_in_turns())
    for offset in (8, 9):
        await asyncio.sleep(0)
        table.commit("g", "t", 3 * MAX_WRITTEN_AT_ONCE - 1, offset)
    await saving
    restored = open_table(tmp_path)
    assert len(restored.places("g")) == 3 * MAX_WRITTEN_AT_ONCE
    assert restored.committed_offset("g", "t", 3 * MAX_WRITTEN_AT_ONCE - 1) == 9


async def test_a_position_that_becomes_a_ledger_during_a_save_is_saved(tmp_path: Path) -> None:
    table = many_queues(tmp_path)
    last = 3 * MAX_WRITTEN_AT_ONCE - 1
    saving = asyncio.create_task(table.write_changes_in_turns())
    await asyncio.sleep(0)
    table.open_ledger("g", "t", last, fifo=False, first_offset=0)
    await saving
    assert open_table(tmp_path).committed_offset("g", "t", last) == 7
    assert table.is_changed


async def test_what_is_forgotten_and_saved_during_a_save_does_not_come_back(tmp_path: Path) -> None:
    table = many_queues(tmp_path)
    table.commit("g", "gone", 0, 5)
    saving = asyncio.create_task(table.write_changes_in_turns())
    await asyncio.sleep(0)
    table.forget(topic="gone")
    table.write_changes()
    await saving
    assert open_table(tmp_path).committed_offset("g", "gone", 0) is None


async def test_a_change_during_a_save_is_still_to_be_written(tmp_path: Path) -> None:
    table = many_queues(tmp_path)
    last = 3 * MAX_WRITTEN_AT_ONCE
    ledger = table.open_ledger("g", "t", last, fifo=False, first_offset=0)
    table.write_changes()
    table.commit("g", "t", 0, 9)
    saving = asyncio.create_task(table.write_changes_in_turns())
    await asyncio.sleep(0)
    ledger.deliver(0, 100, 50)
    await saving
    assert table.is_changed
    await table.write_changes_in_turns()
    assert not table.is_changed
    saved = open_table(tmp_path).ledger("g", "t", last)
    assert saved is not None
    assert saved.in_flight == ledger.in_flight


async def test_the_document_is_made_beside_other_work_and_holds_everything(tmp_path: Path) -> None:
    table = many_queues(tmp_path)
    encoding = asyncio.create_task(table.encode_in_turns())
    await asyncio.sleep(0)
    assert not encoding.done()
    Snapshot(tmp_path / "offsets.json").save(await encoding)
    assert len(open_table(tmp_path).places("g")) == 3 * MAX_WRITTEN_AT_ONCE


async def test_a_failure_in_the_middle_of_a_save_leaves_the_rest_to_be_written(tmp_path: Path) -> None:
    table = many_queues(tmp_path)
    log = FileLog(tmp_path)
    log.failure = StoreError("DISK_FULL", "The disk is full.")
    table.table.bind(log)
    with pytest.raises(StoreError):
        await table.write_changes_in_turns()
    await table.write_changes_in_turns()
    assert len(open_table(tmp_path).places("g")) == 3 * MAX_WRITTEN_AT_ONCE


def test_a_failed_save_is_asked_for_again(tmp_path: Path) -> None:
    table = OffsetTable(Snapshot(tmp_path / "offsets.json"))
    log = FileLog(tmp_path)
    log.failure = StoreError("STORE_FAILED", "The disk is broken.")
    table.table.bind(log)
    table.commit("g", "t", 0, 7)
    with pytest.raises(StoreError) as failed:
        table.write_changes()
    assert failed.value.name == "STORE_FAILED"
    assert table.is_changed


def test_a_group_that_begins_to_pop_goes_on_where_it_had_committed(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    table.commit("g", "t", 0, 7)
    assert table.open_ledger("g", "t", 0, fifo=False, first_offset=2).cursor == 7
    assert table.committed_offset("g", "t", 0) == 7
    assert table.open_ledger("new", "t", 0, fifo=False, first_offset=2).cursor == 2


def test_committing_for_a_group_that_pops_moves_it_forward_only(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    ledger = table.open_ledger("g", "t", 0, fifo=False, first_offset=0)
    table.commit("g", "t", 0, 5)
    table.commit("g", "t", 0, 4)
    assert ledger.cursor == table.committed_offset("g", "t", 0) == 5


def test_what_is_deleted_is_forgotten_and_nothing_else(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    for group in ("g", "h"):
        for topic in ("t", "u"):
            table.commit(group, topic, 0, 7)
            table.open_ledger(group, topic, 1, fifo=False, first_offset=3)
    table.forget(topic="t")
    table.forget(group="h")
    left = {(g, t) for g in "gh" for t in "tu" if table.committed_offset(g, t, 0) is not None}
    popped = {(g, t) for g in "gh" for t in "tu" if table.ledger(g, t, 1) is not None}
    assert left == popped == {("g", "u")}


def test_offsets_beyond_a_log_that_lost_its_end_are_cut_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = open_table(tmp_path)
    table.commit("g", "t", 0, 7)
    ledger = table.open_ledger("g", "t", 1, fifo=False, first_offset=0)
    for offset in range(9):
        ledger.deliver(offset, 1, 1)
    table.write_changes()
    with caplog.at_level(logging.WARNING):
        cut = open_table(tmp_path, end=4)
    assert cut.committed_offset("g", "t", 0) == 4
    restored = cut.ledger("g", "t", 1)
    assert restored is not None
    assert restored.cursor == 4
    assert len(restored.in_flight) == 4
    assert "cut to 4" in caplog.text


def test_offsets_of_a_topic_that_is_gone_are_dropped(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    table.commit("g", "t", 0, 7)
    table.write_changes()
    assert open_table(tmp_path, end=None).committed_offset("g", "t", 0) is None


def test_the_saved_form_can_be_read_by_a_person(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    table.commit("g", "t", 3, 7)
    ledger = table.open_ledger("g", "t", 4, fifo=True, first_offset=0)
    ledger.deliver(0, 100, 50)
    document = json.loads(encode_document(table.make_document()))
    assert document == {
        "version": 1,
        "groups": {
            "g": {
                "t": {
                    "3": {"committed": 7},
                    "4": {
                        "committed": 0,
                        "ledger": {"cursor": 1, "fifo": True, "in_flight": [[0, 100, 50, 150, 1, False, 0, 0, 0]]},
                    },
                }
            }
        },
    }


def test_many_deliveries_in_flight_are_saved_and_restored(tmp_path: Path) -> None:
    table = open_table(tmp_path)
    ledger = table.open_ledger("g", "t", 0, fifo=False, first_offset=0)
    for offset in range(20_000):
        ledger.deliver(offset, 1_700_000_000_000, 60_000)
    table.write_changes()
    restored = open_table(tmp_path, end=20_000).ledger("g", "t", 0)
    assert restored is not None
    assert restored.in_flight == ledger.in_flight
    assert restored.room == 0


@pytest.mark.parametrize("document", [b"nonsense", b'{"version":2,"groups":{}}', b'{"version":1}'])
def test_another_format_is_refused(tmp_path: Path, document: bytes) -> None:
    Snapshot(tmp_path / "offsets.json").save(document)
    with pytest.raises(StoreError) as refused:
        open_table(tmp_path)
    assert refused.value.name == "STORE_FORMAT"
