"""A process without a free descriptor: the store refuses what needs a file, keeps what it took, and goes on."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from crash.starvation import no_free_descriptor
from store_samples import SMALL, bodies, pending

from millstream.broker.state.document import Document, SavedDocument
from millstream.cluster.key_values import KeyValues
from millstream.model.errors import MillstreamError, StoreError
from millstream.store.appender import Appender
from millstream.store.files import FileLayer, FileNotOpened, OpenFiles
from millstream.store.message_store import MessageStore
from millstream.store.snapshot import Snapshot
from patience import PATIENCE_S


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """What is done inside is refused for want of a descriptor."""
    with no_free_descriptor(), pytest.raises(MillstreamError) as refusal:
        yield
    assert refusal.value.name == "FILE_NOT_OPENED", refusal.value


def test_a_send_that_finds_no_descriptor_for_its_segment_is_refused_and_the_next_one_is_stored(tmp_path: Path) -> None:
    with contextlib.closing(MessageStore.open(tmp_path, SMALL)) as store:
        with refused():
            store.put([pending(b"before the first segment")])
        store.put([pending(b"x" * 1500)])
        with refused():
            store.put([pending(b"y" * 1500)])
        assert store.failure is None
        store.put([pending(b"z" * 1500)])
        store.flush()
        assert bodies(store) == [b"x" * 1500, b"z" * 1500]
    with contextlib.closing(MessageStore.open(tmp_path, SMALL)) as store:
        assert bodies(store) == [b"x" * 1500, b"z" * 1500]


def test_a_flush_that_finds_no_descriptor_is_made_up_for(tmp_path: Path) -> None:
    with contextlib.closing(MessageStore.open(tmp_path, SMALL)) as store:
        # The name of a second segment is still to be brought to the disk, for which its directory is opened.
        store.put([pending(b"x" * 1500)])
        store.put([pending(b"y" * 1500)])
        with refused():
            store.flush_log()
        assert store.flushed_log_offset == 0
        store.flush_log()
        assert store.flushed_log_offset == store.written_log_offset


def test_a_checkpoint_a_deletion_and_a_read_without_a_descriptor_are_refused_and_come_later(tmp_path: Path) -> None:
    with contextlib.closing(MessageStore.open(tmp_path, SMALL)) as store:
        store.put([pending(b"a%d" % number) for number in range(12)])
        store.put([pending(b"b", topic="bills")])
        with refused():
            store.write_checkpoint()
        store.write_checkpoint()
        with refused():
            bodies(store)
        assert len(bodies(store)) == 12
        with refused():
            store.delete_topics(["bills"])
        store.delete_topics(["bills"])
        assert store.topics == ["orders"]
        assert store.failure is None


def test_a_failed_sync_is_final_also_where_its_error_says_that_memory_is_out(tmp_path: Path) -> None:
    files = _SyncsWithoutMemory()
    store = MessageStore.open(tmp_path, SMALL, files=files)
    store.put([pending()])
    files.fails = True
    with pytest.raises(StoreError) as failure:
        store.flush_log()
    assert failure.value.name == "STORE_FAILED"
    files.fails = False
    with pytest.raises(StoreError) as failure:
        store.put([pending()])
    assert failure.value.name == "STORE_FAILED"


class _SyncsWithoutMemory(FileLayer):
    fails = False

    def fsync(self, descriptor: int) -> None:
        if self.fails:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        super().fsync(descriptor)

    fdatasync = fsync


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - a thread of the store sets no event of this loop
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("sync_flush", [False, True])
async def test_senders_are_answered_once_there_is_a_descriptor_again(tmp_path: Path, sync_flush: bool) -> None:
    options = replace(SMALL, sync_flush=sync_flush, flush_interval_ms=5)
    with contextlib.closing(MessageStore.open(tmp_path, options)) as store:
        appender = Appender(store)
        await appender.append(pending(b"x" * 1500))
        with no_free_descriptor():
            with pytest.raises(StoreError) as refusal:
                await appender.append(pending(b"y" * 1500))
            assert refusal.value.name == "FILE_NOT_OPENED"
            await asyncio.sleep(0.05)  # The flusher's thread meets it as well.
        await appender.append(pending(b"z" * 1500))
        await _until(lambda: store.flushed_log_offset == store.written_log_offset)
        await appender.close()
        assert bodies(store) == [b"x" * 1500, b"z" * 1500]


async def test_a_sync_flush_that_found_no_descriptor_is_tried_again_and_then_answers(tmp_path: Path) -> None:
    files = _NoDirectories()
    with contextlib.closing(MessageStore.open(tmp_path, replace(SMALL, sync_flush=True), files=files)) as store:
        appender = Appender(store)
        await appender.append(pending(b"x" * 1500))
        files.refusals = 3
        await appender.append(pending(b"y" * 1500))
        assert files.refusals == 0
        await appender.close()
        assert bodies(store) == [b"x" * 1500, b"y" * 1500]


class _NoDirectories(FileLayer):
    refusals = 0

    def sync_directory(self, path: Path) -> None:
        if self.refusals:
            self.refusals -= 1
            raise FileNotOpened(path, OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        super().sync_directory(path)


def test_files_kept_open_for_reading_give_way_to_the_one_that_is_wanted(tmp_path: Path) -> None:
    opened = OpenFiles(FileLayer(), 10)
    paths = [tmp_path / str(number) for number in range(4)]
    for path in paths:
        path.write_text(path.name)
    for path in paths[:3]:
        opened.descriptor(str(path))
    with no_free_descriptor():
        found = os.pread(opened.descriptor(str(paths[3])), 10, 0)
    opened.close()
    assert found == b"3"


def test_saved_documents_and_key_values_are_refused_for_now_and_saved_later(tmp_path: Path) -> None:
    saved = SavedDocument(Snapshot(tmp_path / "topics.json"), Document, noun="topics", version=1)
    with refused():
        saved.save(Document(version=1))
    saved.save(Document(version=1))
    assert saved.load() == Document(version=1)
    values = KeyValues(Snapshot(tmp_path / "values.json"))
    with refused():
        values.put("space", "key", "value")
    values.put("space", "key", "value")
    assert values.get("space", "key") == "value"
