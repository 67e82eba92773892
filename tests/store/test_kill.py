"""kill -9 of a process that appends: nothing it acknowledged is lost, altered or out of order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from store_samples import bodies

from millstream.store.message_store import MessageStore, StoreOptions

pytestmark = pytest.mark.kill


CYCLES = 4
ACKS_PER_CYCLE = 2000

WRITER = """
import asyncio, pathlib, sys
from millstream.model.message import OutgoingMessage
from millstream.store.appender import Appender
from millstream.store.message_store import MessageStore, StoreOptions
from millstream.store.write_batch import PendingRecord

async def main(directory, start, sync_flush):
    options = StoreOptions(segment_bytes=64 * 1024, consume_queue_entries=500, sync_flush=sync_flush)
    store = MessageStore.open(pathlib.Path(directory), options)
    appender = Appender(store)
    number = start
    while True:
        group = range(number, number + 50)
        await asyncio.gather(*(
            appender.append(PendingRecord(OutgoingMessage("orders", b"message %d" % n + b"." * (n % 90), {}), n % 2))
            for n in group
        ))
        number += 50
        print(number, flush=True)
        if number % 1000 == 0:
            store.write_checkpoint()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "sync"))
"""


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path, flush: str) -> None:
    next_number = 0
    for _ in range(CYCLES):
        acked = _write_and_kill(tmp_path, next_number, flush)
        assert acked >= next_number + ACKS_PER_CYCLE
        store = MessageStore.open(tmp_path, StoreOptions(segment_bytes=64 * 1024, consume_queue_entries=500))
        assert not store.was_clean_stop
        found = [bodies(store, queue_id=queue_id) for queue_id in range(2)]
        stored = sum(map(len, found))
        assert stored >= acked
        for queue_id, queue in enumerate(found):
            numbers = range(queue_id, queue_id + 2 * len(queue), 2)
            assert queue == [b"message %d" % n + b"." * (n % 90) for n in numbers]
        store.close()
        # A group may be stored without its acknowledgement; the next cycle goes on behind what is there.
        next_number = stored


def _write_and_kill(directory: Path, start: int, flush: str) -> int:
    """The number behind the last acknowledged one."""
    arguments = [sys.executable, "-c", WRITER, str(directory), str(start), flush]
    acked = start
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            acked = int(line)
            if acked >= start + ACKS_PER_CYCLE:
                writer.kill()
        writer.wait()
    return acked
