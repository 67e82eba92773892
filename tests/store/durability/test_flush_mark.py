"""The mark tells damage from a torn tail."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash.file_twins import HastyFiles
from store_samples import SMALL, bodies, crashed_copy, pending, segments

from millstream.store.durability.flush_mark import FlushMark
from millstream.store.files import FileLayer
from millstream.store.message_store import MessageStore, StoreOptions
from millstream.store.store_state import accept_log_loss

WIDE = StoreOptions(segment_bytes=64 * 1024, consume_queue_entries=5)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_damage_behind_the_checkpoint_and_before_the_mark_costs_its_record_alone(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "data", WIDE, files=HastyFiles())
    places = [store.put([pending(b"%d" % number)])[0] for number in range(6)]
    store.flush_log()
    unflushed = store.put([pending(b"6")])[0]
    crashed = crashed_copy(tmp_path / "data", tmp_path / "crashed")
    store.close()
    flip(segments(crashed)[0], places[2].log_offset + 90)
    again = MessageStore.open(crashed, WIDE, files=HastyFiles())
    assert again.recovery.damaged_places == 1
    entries = again.entries("orders", 0, 0, 100)
    assert [entry.queue_offset for entry in entries] == list(range(7))
    assert [entry.size_bytes > 0 for entry in entries] == [True, True, False, True, True, True, True]
    assert again.written_log_offset == unflushed.log_offset + unflushed.size_bytes
    again.close()


def test_damage_behind_the_mark_is_the_torn_tail(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "data", WIDE, files=HastyFiles())
    places = [store.put([pending(b"%d" % number)])[0] for number in range(2)]
    store.flush_log()
    places += [store.put([pending(b"%d" % number)])[0] for number in range(2, 5)]
    crashed = crashed_copy(tmp_path / "data", tmp_path / "crashed")
    store.close()
    flip(segments(crashed)[0], places[3].log_offset + 90)
    again = MessageStore.open(crashed, WIDE, files=HastyFiles())
    assert bodies(again) == [b"0", b"1", b"2"]
    again.close()


def test_damage_right_before_the_mark_with_nothing_behind_it_does_not_move_the_log_on(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "data", WIDE, files=HastyFiles())
    places = [store.put([pending(b"%d" % number)])[0] for number in range(3)]
    store.flush_log()
    crashed = crashed_copy(tmp_path / "data", tmp_path / "crashed")
    end = store.written_log_offset
    store.close()
    flip(segments(crashed)[0], places[2].log_offset + 90)
    again = MessageStore.open(crashed, WIDE, files=HastyFiles())
    assert again.written_log_offset == end
    assert bodies(again) == [b"0", b"1"]
    again.close()


@pytest.mark.parametrize("content", [b"", b"\0" * 1024, b"garbage" * 200])
def test_a_lost_mark_costs_nothing_but_the_knowledge(tmp_path: Path, content: bytes) -> None:
    store = MessageStore.open(tmp_path / "data", SMALL, files=HastyFiles())
    for number in range(20):
        store.put([pending(b"%d" % number)])
    store.flush_log()
    crashed = crashed_copy(tmp_path / "data", tmp_path / "crashed")
    store.close()
    (crashed / "flushed").write_bytes(content)
    again = MessageStore.open(crashed, SMALL, files=HastyFiles())
    assert len(bodies(again)) == 20
    again.close()


def test_the_greater_of_two_whole_slots_counts_and_any_flipped_bit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "flushed"
    mark = FlushMark(path, FileLayer())
    assert mark.load() == 0
    mark.reset(100)
    mark.note(200)
    mark.note(300)
    assert mark.load() == 300
    mark.close()
    content = path.read_bytes()
    for bit in range(20 * 8):
        for slot in (0, 512):
            damaged = bytearray(content)
            damaged[slot + bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            assert FlushMark(path, FileLayer()).load() in (200, 300)
    for length in range(1024):
        path.write_bytes(content[:length])
        assert FlushMark(path, FileLayer()).load() in (0, 200, 300)


def test_a_new_start_lowers_a_mark_that_lies_behind_the_log(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "data", WIDE, files=HastyFiles())
    for number in range(5):
        store.put([pending(b"%d" % number)])
    store.close()
    for path in segments(tmp_path / "data"):
        path.unlink()
    (tmp_path / "data" / "checkpoint").unlink()
    (tmp_path / "data" / "checkpoint.bak").unlink(missing_ok=True)
    accept_log_loss(tmp_path / "data", HastyFiles())
    again = MessageStore.open(tmp_path / "data", WIDE, files=HastyFiles())
    assert FlushMark(tmp_path / "data" / "flushed", FileLayer()).load() == again.written_log_offset == 0
    again.close()
