"""A compacted queue over a real store."""

from __future__ import annotations

from pathlib import Path

from compaction_samples import Table, key_and_body
from crash.file_twins import HastyFiles
from store_samples import SMALL

from millstream.model.message import Address, OutgoingMessage
from millstream.store.compaction.compacted_queue import CompactedQueue
from millstream.store.message_store import MessageStore
from millstream.store.write_batch import PendingRecord


def _put(store: MessageStore, key: str, body: bytes) -> None:
    message = OutgoingMessage("prices", body, {"KEYS": key, "TAGS": "paid"}, born_host=Address("10.0.0.9", 4))
    store.put([PendingRecord(message, 0), PendingRecord(OutgoingMessage("others", body, {}), 0)])


def test_a_store_and_its_compacted_queue_give_each_record_as_it_was_put(scratch: Path) -> None:
    store = MessageStore.open(scratch / "store", SMALL, files=HastyFiles())
    for number in range(30):
        _put(store, f"k{number % 4}", b"%d" % number)
    queue_of_log = store._queues.find("prices", 0)
    assert queue_of_log is not None
    source = store.log_queue(queue_of_log)
    stored = {entry.queue_offset: bytes(store.read(entry)) for entry in source.entries(0, 100)}
    queue = CompactedQueue("prices", 0, scratch / "compaction", HastyFiles())
    queue.recover(source.min_offset())
    queue.compact(source, 20, 5_000)
    found = {}
    for entry in queue.entries(0, 100, source):
        record = store.read(entry)
        assert bytes(record) == stored[entry.queue_offset]
        assert entry.tags_code == source.entries(entry.queue_offset, 1)[0].tags_code
        found[entry.queue_offset] = key_and_body(record)
    assert list(found) == [16, 17, 18, 19, *range(20, 30)]
    assert found[16] == ("k0", b"16")
    table = Table()
    table.read_all(queue, source, 1000)
    assert table.state == {b"k0": b"28", b"k1": b"29", b"k2": b"26", b"k3": b"27"}
    store.close()
