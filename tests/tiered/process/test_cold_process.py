"""Cold work in a process of its own: the same as in the broker's, and the process may end at any time."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from millstream.model.backoff import Backoff
from millstream.model.errors import StoreError
from millstream.model.message import OutgoingMessage
from millstream.store.message_store import MessageStore, PendingRecord, StoreOptions
from millstream.tiered.chunk import BlockInfo
from millstream.tiered.cold_map import ColdObject, ColdPart, ColdStretch
from millstream.tiered.cold_work import ColdWork, StretchName, WorkHere
from millstream.tiered.footers import read_footer
from millstream.tiered.merging import ObjectUnreadable
from millstream.tiered.objects import ObjectExists, ObjectNotFound, ObjectStore, ObjectStoreAway, ObjectStoreDenied
from millstream.tiered.places import ObjectPlace
from millstream.tiered.process import cold_process
from millstream.tiered.process.cold_process import ColdProcess
from millstream.tiered.process.frames import ColdFrame
from millstream.tiered.process.orders import ObjectIsPut, PartsArePut, WorkGoesOn, WorkRefused, encode_head
from millstream.tiered.work_progress import WorkProgress
from patience import PATIENCE_S, eventually_blocking

pytestmark = pytest.mark.process

WAIT_S = 5.0
MAX_BYTES = 1 << 30
_T = TypeVar("_T")


class Bench:
    """A store with a log, an object store in a directory, and a process for both."""

    def __init__(self, directory: Path) -> None:
        self.store = MessageStore.open(directory / "store", StoreOptions(segment_bytes=64 * 1024))
        for number in range(2000):
            message = OutgoingMessage("ab"[number % 2], b"body %d" % number, {"KEYS": f"k{number}", "TAGS": "x"})
            self.store.put([PendingRecord(message, number % 3)])
        self.store.flush()
        self.place = ObjectPlace(f"file://{directory}/objects")
        self.objects: ObjectStore = self.place.open()
        self.now_s = 0.0
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.process = self.new_process()
        self.threads = ThreadPoolExecutor(4)

    def new_process(self, *, idle_s: float = 1000.0) -> ColdProcess:
        restarts = Backoff(WAIT_S, WAIT_S, jitter=0.0)
        return ColdProcess(self.place, self.loop, idle_s=idle_s, restarts=restarts, now_s=lambda: self.now_s)

    def upload(self, work: ColdWork, name: str) -> tuple[ColdObject, ...]:
        return work.put(StretchName("c", "b", name), self.gather(work), {"a": 1, "b": 2})

    def gather(self, work: ColdWork) -> ColdStretch:
        walk = self.store.walk_log(0, self.store.visible_log_offset)
        gathered = work.gather(walk, {"a": 0, "b": 0}, MAX_BYTES)
        assert not gathered.is_empty
        return ColdStretch(0, 0, gathered.log_end)

    def blocks(self, one: ColdObject) -> list[BlockInfo]:
        footer, _ = read_footer(one.key, one.size_bytes, self.objects.get_many)
        return [info for part in footer.parts for info in part.blocks]

    def begin(self, call: Callable[[], _T]) -> Future[_T]:
        """Have the process stand still with an order under way."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        future = self.threads.submit(call)
        run = self.process._run
        assert run is not None
        eventually_blocking(lambda: run.waiting)
        return future

    def kill(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)

    def read_soon(self, key: str, info: BlockInfo) -> Future[tuple[bytes | memoryview, bytes | memoryview]]:
        """As the event loop reads."""
        return asyncio.run_coroutine_threadsafe(self.process.read_soon(key, info), self.loop)

    def close(self) -> None:
        self.process.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self.threads.shutdown()
        self.store.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def test_objects_and_blocks_are_those_that_the_broker_itself_would_make(bench: Bench) -> None:
    here = WorkHere(bench.objects)
    [*expected], [*found] = bench.upload(here, "here"), bench.upload(bench.process, "process")
    assert [one.parts for one in found] == [one.parts for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert bench.objects.get(one.key) == bench.objects.get(other.key)
        for info in bench.blocks(one):
            expected_block = here.read_block(one.key, info)
            assert bench.process.read_block(one.key, info) == expected_block
            assert bench.read_soon(one.key, info).result(PATIENCE_S) == expected_block
            last = bench.process.find_record(one.key, [info], info.last_log_offset)
            assert last is not None
            assert last == here.find_record(one.key, [info], info.last_log_offset)
            assert bench.process.find_record(one.key, [info], info.last_log_offset + 1) is None
    assert bench.process.starts == 1


def test_merges_are_those_that_the_broker_itself_would_make_and_name_what_they_cannot_read(bench: Bench) -> None:
    here, end, sources = WorkHere(bench.objects), bench.store.visible_log_offset, []
    begin = 0
    while begin < end:
        gathered = here.gather(bench.store.walk_log(begin, end), {"a": 0, "b": 0}, end // 3)
        row = ColdStretch(0, begin, gathered.log_end)
        sources += here.put(StretchName("c", "b", f"s{begin}"), row, {"a": 1, "b": 1})
        begin = gathered.log_end
    assert len(sources) > 2
    whole, classes = ColdStretch(0, 0, end), {"a": 1, "b": 1}
    read = WorkProgress()
    expected = here.merge(StretchName("c", "b", "here"), whole, sources, classes, WorkProgress())
    found = bench.process.merge(StretchName("c", "b", "process"), whole, sources, classes, read)
    assert [one.parts for one in found] == [one.parts for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert bench.objects.get(one.key) == bench.objects.get(other.key)
    assert tuple(read.objects) == found
    assert read.bytes_read >= sum(one.size_bytes for one in sources) // 2
    bench.objects.delete([sources[1].key])
    for work in (here, bench.process):
        with pytest.raises(ObjectUnreadable) as caught:
            work.merge(StretchName("c", "b", f"again-{id(work)}"), whole, sources, classes, WorkProgress())
        assert (caught.value.key, caught.value.name) == (sources[1].key, "OBJECT_NOT_FOUND")


def test_errors_keep_their_meaning(bench: Bench, tmp_path: Path) -> None:
    [one, *_] = bench.upload(bench.process, "s")
    [info, *_] = bench.blocks(one)
    with pytest.raises(ObjectNotFound, match="'nothing'"):
        bench.process.read_block("nothing", info)
    with pytest.raises(ObjectNotFound, match="'nothing'"):
        bench.read_soon("nothing", info).result(PATIENCE_S)
    with pytest.raises(ObjectExists):
        bench.upload(bench.process, "s")
    file = tmp_path / "objects" / one.key
    data = bytearray(file.read_bytes())
    data[info.position + 5] ^= 1
    file.write_bytes(data)
    for read in (
        lambda: bench.process.read_block(one.key, info),
        lambda: bench.process.find_record(one.key, [info], info.last_log_offset),
    ):
        with pytest.raises(StoreError, match="checksum") as damage:
            read()
        assert damage.value.name == "CHUNK_DAMAGED"
    file.write_bytes(data[: info.position])
    with pytest.raises(StoreError) as damage:
        bench.process.read_block(one.key, info)
    assert damage.value.name == "CHUNK_DAMAGED"
    shutil.rmtree(tmp_path / "objects")
    (tmp_path / "objects").write_text("no directory")
    with pytest.raises(ObjectStoreDenied):
        bench.process.read_block(one.key, info)
    assert bench.process.starts == 1


def test_an_error_without_a_row_in_the_catalogue_is_told_all_the_same() -> None:
    assert "NEW_KIND" in str(WorkRefused("NEW_KIND", "of a newer version").error())


def test_a_process_that_is_killed_while_it_reads_is_a_store_that_does_not_answer(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    [one, *_] = bench.upload(bench.process, "s")
    [info, *_] = bench.blocks(one)
    reads = [bench.begin(lambda: bench.process.read_block(one.key, info)) for _ in range(3)]
    reads.append(bench.read_soon(one.key, info))
    bench.kill()
    for read in reads:
        with pytest.raises(ObjectStoreAway, match="-9"):
            read.result(PATIENCE_S)
    # Not at once again, so that one that ends whenever it starts does not take the machine.
    with pytest.raises(ObjectStoreAway, match=r"5\.0 s"):
        bench.process.read_block(one.key, info)
    assert bench.process.starts == 1
    bench.now_s += WAIT_S
    assert bench.process.read_block(one.key, info) == WorkHere(bench.objects).read_block(one.key, info)
    assert bench.process.starts == 2
    assert [words for words in caplog.messages if "ended with -9" in words]


def test_a_process_that_is_killed_while_it_uploads_has_put_nothing_that_counts(bench: Bench) -> None:
    row = bench.gather(bench.process)
    put = bench.begin(lambda: bench.process.put(StretchName("c", "b", "s"), row, {}))
    bench.kill()
    with pytest.raises(ObjectStoreAway):
        put.result(PATIENCE_S)
    bench.now_s += WAIT_S
    # The next one has nothing of what was gathered: the stretch begins anew, under another name.
    with pytest.raises(ObjectStoreAway, match="gathered"):
        bench.process.put(StretchName("c", "b", "s"), row, {})
    assert bench.upload(bench.process, "again")


def test_a_process_without_work_ends_and_is_started_again_for_the_next_one(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    process = bench.process = bench.new_process(idle_s=0.01)
    assert process.pid is None
    assert not process.reads_soon
    [one, *_] = bench.upload(process, "s")
    [info, *_] = bench.blocks(one)
    assert process.reads_soon
    bench.now_s += 1.0
    eventually_blocking(lambda: process.pid is None)
    process.read_block(one.key, info)
    assert process.starts == 2
    assert not caplog.messages


def test_a_process_that_does_not_answer_is_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    [one, *_] = bench.upload(bench.process, "s")
    [info, *_] = bench.blocks(one)
    monkeypatch.setattr(cold_process, "LOOK_S", 0.01)
    read = bench.begin(lambda: bench.process.read_block(one.key, info))
    bench.now_s += cold_process.MAX_READ_S
    with pytest.raises(ObjectStoreAway, match="no answer"):
        read.result(PATIENCE_S)
    eventually_blocking(lambda: bench.process.pid is None)


def test_a_merge_takes_as_long_as_it_comes_forward_and_ends_where_it_does_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_process, "LOOK_S", 0.01)
    sources = bench.upload(bench.process, "s")
    row, progress = ColdStretch(0, 0, bench.store.visible_log_offset), WorkProgress()
    merge = bench.begin(lambda: bench.process.merge(StretchName("c", "b", "m"), row, sources, {}, progress))
    run = bench.process._run
    assert run is not None
    [(number, given)] = run.waiting.items()
    for told in range(5):
        heard_s = bench.now_s
        bench.now_s += cold_process.MAX_UPLOAD_S - 1
        one = ColdObject(f"s/{told}", 1, 2, (ColdPart("a", 0, told, told + 1, 0, 0),))
        assert given.heard_s == heard_s
        for said in (PartsArePut(one.parts), ObjectIsPut(one), WorkGoesOn(2, 10)):
            frame = ColdFrame(number, encode_head(said), b"")
            bench.loop.call_soon_threadsafe(bench.process._hand_out, run, frame)
        eventually_blocking(lambda: progress.requests == 2 * (told + 1))  # noqa: B023 - called at once
        assert not merge.done()
        assert progress.objects[-1].parts == one.parts * 2
    assert progress.bytes_read == 50
    bench.now_s += cold_process.MAX_UPLOAD_S
    with pytest.raises(ObjectStoreAway, match="no answer"):
        merge.result(PATIENCE_S)
    eventually_blocking(lambda: bench.process.pid is None)


def test_a_process_that_does_not_answer_the_event_loop_is_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    [one, *_] = bench.upload(bench.process, "s")
    [info, *_] = bench.blocks(one)
    assert bench.process.pid is not None
    os.kill(bench.process.pid, signal.SIGSTOP)
    monkeypatch.setattr(cold_process, "MAX_READ_S", 0.05)
    with pytest.raises(ObjectStoreAway, match="no answer"):
        bench.read_soon(one.key, info).result(PATIENCE_S)
    eventually_blocking(lambda: bench.process.pid is None)


def test_a_reader_that_is_gone_leaves_the_answers_of_others(bench: Bench) -> None:
    [one, *_] = bench.upload(bench.process, "s")
    [info, *_] = bench.blocks(one)
    pid = bench.process.pid
    assert pid is not None
    other = bench.begin(lambda: bench.process.read_block(one.key, info))
    gone = bench.read_soon(one.key, info)
    run = bench.process._run
    assert run is not None
    eventually_blocking(lambda: len(run.waiting) == 2)
    gone.cancel()
    os.kill(pid, signal.SIGCONT)
    assert other.result(PATIENCE_S) == WorkHere(bench.objects).read_block(one.key, info)
    assert bench.process.pid == pid


def test_a_close_fails_what_is_under_way_and_starts_nothing_more(bench: Bench) -> None:
    [one, *_] = bench.upload(bench.process, "s")
    [info, *_] = bench.blocks(one)
    pid = bench.process.pid
    assert pid is not None
    read = bench.begin(lambda: bench.process.read_block(one.key, info))
    os.kill(pid, signal.SIGCONT)
    bench.process.close()
    if (error := read.exception(PATIENCE_S)) is not None:
        assert isinstance(error, ObjectStoreAway)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ObjectStoreAway, match="closing"):
        bench.process.read_block(one.key, info)


_PARENT = """
import asyncio
import sys
import threading
from millstream.tiered.chunk import BlockInfo
from millstream.tiered.objects import ObjectNotFound
from millstream.tiered.places import ObjectPlace
from millstream.tiered.process.cold_process import ColdProcess

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
process = ColdProcess(ObjectPlace(sys.argv[1]), loop)
try:
    process.read_block("nothing", BlockInfo(*[0] * 11))
except ObjectNotFound:
    print(process.pid, flush=True)
sys.stdin.read()
"""


def test_it_ends_with_its_broker_however_that_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PARENT, f"file://{tmp_path}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.kill()
    eventually_blocking(lambda: not _is_there(pid))


def _is_there(pid: int) -> bool:
    """Whether the process runs; one that has ended may wait for its end to be noted."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
