"""One record with entries in light queues: in the same put, derived anew at a start, let go with the log."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from crash.file_twins import HastyFiles
from store_samples import SMALL, bodies, message, pending

from millstream.model.clock import ManualClock
from millstream.model.errors import StoreError
from millstream.model.light_queue import decode_light_places, encode_light_places
from millstream.model.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET
from millstream.protocol.record import decode_record, outline_record
from millstream.store.light_queue import LightEntry
from millstream.store.message_store import MessageStore
from millstream.store.retention import RetentionPolicy
from millstream.store.seed import seed_store
from millstream.store.write_batch import PendingRecord

A, B = "%LMQ%mqtt-a", "%LMQ%b"


def open_store(directory: Path, **more: object) -> MessageStore:
    return MessageStore.open(directory, SMALL, clock=ManualClock(step_ms=1), files=HastyFiles(), **more)  # type: ignore[arg-type]


def test_a_record_has_its_place_in_each_light_queue_and_says_so(scratch: Path) -> None:
    with closing(open_store(scratch)) as store:
        store.put([pending(b"one", light_queues=(A,)), pending(b"two", light_queues=(A, B)), pending(b"three")])
        assert (bodies(store), bodies(store, A), bodies(store, B)) == (
            [b"one", b"two", b"three"],
            [b"one", b"two"],
            [b"two"],
        )
        (entry,) = store.entries(A, 0, 1, 1)
        assert isinstance(entry, LightEntry)
        read = decode_record(store.read(entry))
        assert (read.properties[MULTI_DISPATCH], read.properties[MULTI_QUEUE_OFFSET]) == (f"{A},{B}", "1,0")
        assert outline_record(store.read(entry)).light_places == ((A, 1), (B, 0))


def test_what_a_message_says_of_light_queues_by_itself_does_not_count(scratch: Path) -> None:
    forged = message(b"forged")
    forged.properties.update({MULTI_DISPATCH: A, MULTI_QUEUE_OFFSET: "0", "own": "1"})
    with closing(open_store(scratch)) as store:
        store.put([PendingRecord(forged, 0)])
        assert decode_record(store.read(store.entries("orders", 0, 0, 1)[0])).properties == {"own": "1"}
    shutil.rmtree(scratch / "consumequeue")
    with closing(open_store(scratch)) as store:
        assert (bodies(store), store.holds(A, 0)) == ([b"forged"], False)


def test_all_or_none_of_a_put_has_entries(scratch: Path) -> None:
    with closing(open_store(scratch)) as store:
        with pytest.raises(ValueError, match="do not fit"):
            store.put([pending(b"a", light_queues=(A,)), pending(b"b", tag="t" * 40_000, light_queues=(A,))])
        assert not store.holds(A, 0)
        store.put([pending(b"c", light_queues=(A,))])
        assert bodies(store, A) == [b"c"]


def test_retention_lets_entries_go_with_their_records_and_gives_no_offset_twice(scratch: Path) -> None:
    clock = ManualClock()
    options = replace(SMALL, retention=RetentionPolicy(keep_ms=1000))
    with closing(MessageStore.open(scratch / "source", options, clock=clock)) as store:
        store.put([pending(b"gone", light_queues=(B,))])
        for number in range(30):
            store.put([pending(b"%d" % number * 60, light_queues=(A,))])
        store.write_checkpoint()
        clock.advance_ms(10_000_000)
        store.retain()
        assert 0 < store.min_offset(A, 0) < store.max_offset(A, 0) == 30
        assert (store.min_offset(B, 0), store.max_offset(B, 0)) == (1, 1)
        assert bodies(store, A) == bodies(store)
        seed_store(scratch / "replica", store.make_seed(), SMALL.segment_bytes)
        with closing(MessageStore.open(scratch / "replica", replace(SMALL, replicated=True))) as replica:
            while (chunk := store.read_chunk(replica.written_log_offset, 700)).records:
                replica.append_chunk(chunk.log_offset, bytes(chunk.records))
            replica.confirm(store.written_log_offset)
            assert bodies(replica, A) == bodies(store, A)
            assert replica.max_offset(B, 0) == 1
        store.put([pending(b"next", light_queues=(A, B))])
        assert store.entries(B, 0, 0, 1)[0].queue_offset == 1


def test_a_queue_whose_files_lead_to_records_that_do_not_name_it_is_made_again(scratch: Path) -> None:
    with closing(open_store(scratch)) as store:
        store.put([pending(b"a", light_queues=(A,)), pending(b"b", light_queues=(B,))])
    queues = scratch / "consumequeue"
    shutil.copytree(queues / B, queues / A, dirs_exist_ok=True)
    with closing(open_store(scratch)) as store:
        assert store.recovery.rebuilt_queues == 1
        assert (bodies(store, A), bodies(store, B)) == ([b"a"], [b"b"])


def test_an_entry_of_a_damaged_record_reads_nothing(scratch: Path) -> None:
    with closing(open_store(scratch)) as store:
        store.put([pending(b"a", light_queues=(A,)), pending(b"b", light_queues=(A,))])
        entry = store.entries(A, 0, 0, 1)[0]
        for wrong in (entry._replace(log_offset=entry.log_offset + 1), entry._replace(size_bytes=entry.size_bytes + 1)):
            with pytest.raises(StoreError, match="MS-4002"):
                store.read(wrong)
        assert store.read_run(A, 0, 0, 2, 1 << 20) is not None
        assert store.read_all(store.entries(A, 0, 0, 2)) is not None


def test_records_that_are_read_together_are_those_that_are_read_one_by_one(scratch: Path) -> None:
    with closing(open_store(scratch)) as store:
        store.put([pending(b"a", light_queues=(A,)), pending(b"b"), pending(b"c", light_queues=(A, B))])
        entries = store.entries(A, 0, 0, 2)
        assert store.read_run(A, 0, 0, 9, 1 << 20) == (
            b"".join(store.read(entry) for entry in entries),
            [(entry.log_offset, entry.size_bytes, 0) for entry in entries],
        )
        assert store.read_run(B, 0, 0, 9, 1 << 20) == (store.read(entries[1]), [entries[1][1:4]])


def test_places_that_do_not_fit_each_other_are_none() -> None:
    assert decode_light_places(*encode_light_places([(A, 5), (B, 0)])) == ((A, 5), (B, 0))
    for names, offsets in ((A, ""), (A, "1,2"), (f"{A},orders", "1,2"), ("%LMQ%$bind$lite", "1"), (A, "-1"), (A, "x")):
        assert decode_light_places(names, offsets) == ()


def test_a_deletion_that_a_replica_hears_of_later_keeps_what_came_behind_it(scratch: Path) -> None:
    with closing(open_store(scratch / "source")) as source, closing(open_store(scratch / "replica")) as replica:
        source.put([pending(b"old", light_queues=(A,))])
        place = source.written_log_offset
        source.delete_topic(A)
        source.put([pending(b"new", light_queues=(A,))])
        replica.append_chunk(0, bytes(source.read_chunk(0, 1 << 20).records))
        replica.delete_topics([A], log_offset=place)
        assert (bodies(replica, A), bodies(source, A)) == ([b"new"], [b"new"])


def test_a_start_shows_no_entry_of_a_record_that_replicas_have_not_confirmed(scratch: Path) -> None:
    options = replace(SMALL, replicated=True)
    with closing(MessageStore.open(scratch, options)) as store:
        store.put([pending(b"confirmed", light_queues=(A,))])
        store.confirm(store.written_log_offset)
        store.put([pending(b"later", light_queues=(A,))])
        assert bodies(store, A) == [b"confirmed"]
    with closing(MessageStore.open(scratch, options)) as store:
        assert bodies(store, A) == [b"confirmed"]
        store.confirm(store.written_log_offset)
        assert bodies(store, A) == [b"confirmed", b"later"]
