"""The appender: one write a turn, answers at the promised moment, failures that are final, limits that are met."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from crash.file_twins import FailingFiles, Operation, RecordingFiles
from store_samples import SMALL, bodies, message, pending

from millstream.model.errors import MessageRefused, StoreError
from millstream.store import appender as appender_module
from millstream.store.appender import Appender, is_stored
from millstream.store.files import FileLayer
from millstream.store.message_store import MessageStore, StoreOptions
from millstream.store.write_batch import PendingRecord
from patience import eventually, within_patience

ASYNC = replace(SMALL, segment_bytes=1024 * 1024)
SYNC = replace(ASYNC, sync_flush=True)
UNENCODABLE = PendingRecord(replace(message(), properties={"k": "v" * 40_000}), 0)

Opener = Callable[[StoreOptions, FileLayer], tuple[Appender, MessageStore]]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opener]:
    pairs: list[tuple[Appender, MessageStore]] = []

    def open_appender(options: StoreOptions, files: FileLayer) -> tuple[Appender, MessageStore]:
        store = MessageStore.open(tmp_path, options, files=files)
        pairs.append((Appender(store), store))
        return pairs[-1]

    yield open_appender
    for appender, store in pairs:
        await appender.close()
        store.close()


@pytest.mark.parametrize("options", [ASYNC, SYNC])
async def test_what_comes_in_one_turn_is_one_write_and_answered_in_order(opened: Opener, options: StoreOptions) -> None:
    files = RecordingFiles()
    appender, store = opened(options, files)
    files.operations.clear()
    futures = [appender.append(pending(b"%d" % number, queue_id=number % 2)) for number in range(10)]
    many = appender.append_many([pending(b"a"), pending(b"b", queue_id=1)])
    assert files.operations == [], "nothing is written before the turn ends"
    appended = await asyncio.gather(*futures)
    assert [record.queue_offset for record in appended] == [number // 2 for number in range(10)]
    assert [record.queue_offset for record in await many] == [5, 5]
    assert files.of_log("pwrite") == ["pwrite"]
    assert bodies(store, queue_id=1) == [b"1", b"3", b"5", b"7", b"9", b"b"]


async def test_under_sync_flush_an_answer_and_a_reader_follow_the_sync(opened: Opener) -> None:
    files = RecordingFiles()
    appender, store = opened(SYNC, files)
    files.operations.clear()
    log = Path("commitlog")

    def saw(_: object) -> None:
        files.operations.append(Operation("visible", log / "seen"))

    appender.on_visible = saw
    future = appender.append(pending())
    future.add_done_callback(lambda _: files.operations.append(Operation("answered", log / "seen")))
    await future
    await asyncio.sleep(0)
    assert files.of_log() == ["pwrite", "sync", "visible", "answered"]
    assert store.max_offset("orders", 0) == 1


async def test_under_async_flush_an_answer_follows_the_write_and_the_flush_comes_by_itself(opened: Opener) -> None:
    files = RecordingFiles()
    appender, store = opened(replace(ASYNC, flush_interval_ms=20), files)
    files.operations.clear()
    await appender.append(pending())
    assert files.of_log() == ["pwrite"]

    await eventually(lambda: store.flushed_log_offset == store.written_log_offset)
    assert files.of_log() == ["pwrite", "sync"]


async def test_what_comes_during_a_sync_shares_the_next_one(opened: Opener) -> None:
    files, gate, syncs = FailingFiles(), threading.Event(), []
    appender, store = opened(SYNC, files)

    def wait_at_gate() -> None:
        syncs.append(store.written_log_offset)
        assert gate.wait(10)

    files.before_sync = wait_at_gate
    first = appender.append(pending(b"first"))
    await eventually(lambda: len(syncs) == 1)
    later = [appender.append(pending(b"later")) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later += [appender.append(pending(b"last"))]
    await asyncio.sleep(0)
    assert not any(future.done() for future in (first, *later))
    assert bodies(store) == []
    gate.set()
    await asyncio.gather(first, *later)
    assert len(syncs) == 2
    assert bodies(store) == [b"first"] + [b"later"] * 5 + [b"last"]


@pytest.mark.parametrize("options", [ASYNC, SYNC])
async def test_readers_are_told_which_queues_have_something_new(opened: Opener, options: StoreOptions) -> None:
    (appender, store), told = opened(options, RecordingFiles()), []

    def visible(pairs: object) -> None:
        assert isinstance(pairs, list)
        told.extend(pairs)
        assert all(store.max_offset(*pair) for pair in pairs)

    appender.on_visible = visible
    await asyncio.gather(
        *(appender.append(pending(queue_id=number % 2)) for number in range(6)),
        appender.append(pending(topic="other", queue_id=7)),
    )
    assert sorted(told) == [("orders", 0), ("orders", 1), ("other", 7)]


@pytest.mark.parametrize(("failing", "options"), [("sync", SYNC), ("pwrite", SYNC), ("pwrite", ASYNC)])
async def test_a_failed_write_or_sync_is_final(opened: Opener, failing: str, options: StoreOptions) -> None:
    files = FailingFiles()
    appender, store = opened(options, files)
    await appender.append(pending(b"before"))
    files.errors = {failing: errno.EIO}
    waiting = [appender.append(pending()), appender.append(pending())]
    for future in waiting:
        with pytest.raises(StoreError) as caught:
            await future
        assert caught.value.name == "STORE_FAILED"
    files.errors = {}
    with pytest.raises(StoreError) as caught:
        await appender.append(pending())
    assert caught.value.name == "STORE_FAILED"
    assert bodies(store) == [b"before"]


async def test_a_failed_background_sync_stops_the_senders(opened: Opener) -> None:
    files = FailingFiles()
    appender, _ = opened(replace(ASYNC, flush_interval_ms=10), files)
    files.errors = {"sync": errno.EIO}

    async def send_until_refused() -> None:
        while True:
            await appender.append(pending())
            await asyncio.sleep(0.005)

    with pytest.raises(StoreError) as caught:
        await within_patience(send_until_refused())
    assert caught.value.name == "STORE_FAILED"


async def test_a_full_disk_refuses_those_that_met_it_and_nobody_later(opened: Opener) -> None:
    files = FailingFiles()
    appender, store = opened(SMALL, files)
    files.errors = {"preallocate": errno.ENOSPC}
    for future in [appender.append(pending(b"lost")), appender.append(pending(b"lost"))]:
        with pytest.raises(StoreError) as caught:
            await future
        assert caught.value.name == "DISK_FULL"
    files.errors = {}
    await appender.append(pending(b"kept"))
    assert bodies(store) == [b"kept"]


async def test_a_message_that_cannot_be_stored_fails_no_other(opened: Opener) -> None:
    appender, store = opened(ASYNC, RecordingFiles())
    good, bad, also_good = (appender.append(record) for record in (pending(b"1"), UNENCODABLE, pending(b"2")))
    assert (await good).queue_offset == 0
    assert (await also_good).queue_offset == 1
    with pytest.raises(ValueError, match="do not fit"):
        await bad
    assert bodies(store) == [b"1", b"2"]


async def test_an_append_from_within_the_callback_is_not_lost(opened: Opener) -> None:
    (appender, store), answered = opened(ASYNC, RecordingFiles()), []

    def append_once_more(_: object) -> None:
        appender.on_visible = None
        answered.append(appender.append(pending(b"from the callback")))

    appender.on_visible = append_once_more
    futures = [appender.append(record) for record in (pending(b"1"), UNENCODABLE, pending(b"2"))]
    await asyncio.gather(*futures, return_exceptions=True)
    await answered[0]
    assert sorted(bodies(store)) == [b"1", b"2", b"from the callback"]


async def test_a_sender_that_gave_up_disturbs_nobody(opened: Opener) -> None:
    appender, store = opened(SYNC, RecordingFiles())
    given_up, waiting = appender.append(pending(b"given up")), appender.append(pending(b"waiting"))
    given_up.cancel()
    assert (await waiting).queue_offset == 1
    assert bodies(store) == [b"given up", b"waiting"]


async def test_more_than_may_wait_is_refused_until_there_is_room(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender_module, "MAX_WAITING_BYTES", 3000)
    files, gate = FailingFiles(), threading.Event()
    appender, _ = opened(SYNC, files)
    files.before_sync = lambda: _wait(gate)
    waiting = [appender.append(pending(b"x" * 900)), appender.append(pending(b"x" * 900))]
    with pytest.raises(MessageRefused) as caught:
        appender.append(pending(b"x" * 900))
    assert caught.value.name == "TOO_MANY_REQUESTS"
    gate.set()
    await asyncio.gather(*waiting)
    await appender.append(pending(b"x" * 900))
    for future in [appender.append(UNENCODABLE), appender.append(UNENCODABLE)]:
        with pytest.raises(ValueError, match="do not fit"):
            await future
    await appender.append(pending(b"x" * 2000))


def _wait(gate: threading.Event) -> None:
    assert gate.wait(10)


async def test_a_slow_disk_is_told_to_the_sender_and_the_message_stays(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender_module, "FLUSH_TIMEOUT_S", 0.02)
    files, gate = FailingFiles(), threading.Event()
    appender, store = opened(SYNC, files)
    files.before_sync = lambda: _wait(gate)
    with pytest.raises(StoreError) as caught:
        await appender.append(pending(b"slow"))
    assert caught.value.name == "FLUSH_TIMEOUT"
    gate.set()
    await appender.append(pending(b"next"))
    assert bodies(store) == [b"slow", b"next"]


async def test_closing_answers_what_waits_and_takes_nothing_more(opened: Opener) -> None:
    for options in (SYNC, ASYNC):
        appender, store = opened(options, RecordingFiles())
        waiting = appender.append(pending())
        await appender.close()
        assert waiting.done()
        with pytest.raises(StoreError):
            appender.append(pending())
        await appender.close()
        store.close()


async def test_checkpoints_are_written_in_the_background(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.store.durability.checkpoint_writer.CHECKPOINT_LOG_BYTES", 100)
    for options in (SYNC, ASYNC):
        files = RecordingFiles()
        appender, store = opened(replace(options, flush_interval_ms=10), files)
        files.operations.clear()
        await appender.append(pending())
        await eventually(lambda files=files: any(operation.path.name == "checkpoint" for operation in files.operations))
        await appender.close()
        store.close()


@pytest.mark.parametrize("options", [ASYNC, SYNC])
async def test_those_who_wait_at_once_share_the_write_and_hear_where_their_records_stand(
    opened: Opener, options: StoreOptions
) -> None:
    files = RecordingFiles()
    appender, store = opened(options, files)
    files.operations.clear()
    many, one = await asyncio.gather(
        appender.append_now([pending(b"1"), pending(b"2")]), appender.append_now([pending(b"3")])
    )
    assert [record.queue_offset for record in (*many, *one)] == [0, 1, 2]
    assert files.of_log("pwrite") == ["pwrite"]
    assert bodies(store) == [b"1", b"2", b"3"]


async def test_those_who_wait_at_once_wait_for_the_sync_too(opened: Opener) -> None:
    files, gate = FailingFiles(), threading.Event()
    appender, store = opened(SYNC, files)
    files.before_sync = lambda: _wait(gate)
    waiting = asyncio.ensure_future(appender.append_now([pending()]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    gate.set()
    await waiting
    assert bodies(store) == [b"body"]


async def test_what_cannot_be_stored_is_refused_to_those_who_wait_at_once(opened: Opener) -> None:
    appender, store = opened(ASYNC, RecordingFiles())
    good, bad = await asyncio.gather(
        appender.append_now([pending(b"1")]), appender.append_now([UNENCODABLE]), return_exceptions=True
    )
    assert isinstance(bad, ValueError)
    assert not isinstance(good, BaseException)
    assert bodies(store) == [b"1"]


async def test_records_are_stored_though_nobody_waits_for_them_any_more(opened: Opener) -> None:
    appender, store = opened(ASYNC, RecordingFiles())
    waiting = asyncio.ensure_future(appender.append_now([pending(b"1")]))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    assert bodies(store) == [b"1"]


async def test_an_append_that_follows_those_who_wait_at_once_is_written_with_them(opened: Opener) -> None:
    files = RecordingFiles()
    appender, store = opened(ASYNC, files)
    files.operations.clear()

    async def both() -> None:
        at_once = asyncio.ensure_future(appender.append_now([pending(b"1")]))
        await asyncio.sleep(0)
        later = appender.append(pending(b"2"))
        await asyncio.gather(at_once, later)

    await within_patience(both())
    assert files.of_log("pwrite") == ["pwrite"]
    assert bodies(store) == [b"1", b"2"]


REPLICATED = replace(ASYNC, replicated=True)


async def test_a_replicated_record_is_answered_when_replicas_have_it(opened: Opener) -> None:
    appender, store = opened(REPLICATED, RecordingFiles())
    seen: list[tuple[str, int]] = []
    appender.on_visible = seen.extend
    first, second = appender.append(pending(b"1")), appender.append(pending(b"2"))
    await asyncio.sleep(0)
    third = appender.append(pending(b"3"))
    await asyncio.sleep(0)
    half = store.written_log_offset
    assert not any(future.done() for future in (first, third))
    assert not seen
    later = appender.append(pending(b"4"))
    await asyncio.sleep(0)
    store.confirm(half)
    assert [(await future).queue_offset for future in (first, second, third)] == [0, 1, 2]
    assert not later.done()
    assert seen == [("orders", 0)]
    store.confirm(store.written_log_offset)
    assert (await later).queue_offset == 3


@pytest.mark.parametrize("flush_first", [True, False])
async def test_with_sync_flush_and_replicas_both_are_waited_for(opened: Opener, flush_first: bool) -> None:
    files, gate = FailingFiles(), threading.Event()
    appender, store = opened(replace(SYNC, replicated=True), files)
    files.before_sync = lambda: _wait(gate)
    future = appender.append(pending())
    await asyncio.sleep(0)
    if flush_first:
        gate.set()
        await within_patience(eventually(lambda: store.flushed_log_offset == store.written_log_offset))
    else:
        store.confirm(store.written_log_offset)
    await asyncio.sleep(0)
    assert not future.done()
    if flush_first:
        store.confirm(store.written_log_offset)
    gate.set()
    await future


async def test_replicas_that_are_late_are_said_and_the_record_is_seen_later(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender_module, "REPLICAS_TIMEOUT_S", 0.01)
    appender, store = opened(REPLICATED, RecordingFiles())
    ended: list[BaseException | None] = []
    appender.append_then([pending(b"1")], lambda _, error: ended.append(error))
    with pytest.raises(StoreError) as refused:
        await appender.append(pending(b"2"))
    assert refused.value.name == "REPLICAS_TIMEOUT"
    assert is_stored(refused.value)
    seen: list[tuple[str, int]] = []
    appender.on_visible = seen.extend
    store.confirm(store.written_log_offset)
    assert bodies(store) == [b"1", b"2"]
    assert seen == [("orders", 0)]
    assert len(ended) == 1, "who was refused hears nothing more"


async def test_what_is_not_confirmed_when_the_appender_closes_is_refused(opened: Opener) -> None:
    appender, _ = opened(REPLICATED, RecordingFiles())
    future = appender.append(pending())
    await asyncio.sleep(0)
    await appender.close()
    with pytest.raises(StoreError, match="replicas"):
        await future


async def test_what_is_not_admitted_is_refused_before_it_is_written(opened: Opener) -> None:
    appender, store = opened(REPLICATED, RecordingFiles())

    def refuse() -> None:
        raise StoreError("TOO_FEW_REPLICAS", "The set has 1 member; 2 are demanded.")

    appender.check_admission = refuse
    with pytest.raises(StoreError, match="2 are demanded"):
        appender.append(pending())
    assert not store.written_log_offset
