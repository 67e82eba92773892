"""Every file and folder of a data directory missing, empty, damaged or older, and what a start makes of it.

The table of docs/durability.md says the same in words.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from broker_bench import MEMORY, running

from millstream.broker.broker import Broker
from millstream.broker.data_directory import accept_losses, all_losses
from millstream.broker.queues.consumer_groups import RequestKind, RequestMode
from millstream.model.clock import ManualClock
from millstream.model.errors import MillstreamError, StartRefused, StoreError
from millstream.model.group import GroupConfig
from millstream.model.message import OutgoingMessage
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.record import decode_record
from millstream.store.manifest import StoreManifest
from millstream.store.message_store import StoreOptions
from millstream.store.snapshot import Snapshot

STORE = StoreOptions(segment_bytes=8 * 1024, consume_queue_entries=32)
SENT = 60
DAY_MS = 86_400_000

WHOLE = "starts whole"
STARTS = "starts with what is there"
MISSING = "DATA_MISSING"
LACKS = "LOG_INCOMPLETE"
UNREADABLE = "STORE_FORMAT"

Content = dict[str, Any]


@asynccontextmanager
async def started(directory: Path) -> AsyncIterator[Broker]:
    async with running(directory, store=STORE, clock=ManualClock()) as broker:
        yield broker


async def send(broker: Broker, topic: str, count: int, **properties: str) -> None:
    for number in range(count):
        held = {"UNIQ_KEY": f"{topic}-{number}", "KEYS": f"k{number % 3}", **properties}
        await broker.delivery.send([OutgoingMessage(topic, b"%d " % number + b"x" * 200, held, queue_id=0)])


async def fill(directory: Path, older: Path) -> None:
    """A directory with a part of every kind, cleanly stopped, and beside it what it held some time before."""
    async with started(directory) as broker:
        for topic in (
            TopicConfig("t"),
            TopicConfig("gone"),
            TopicConfig("later", MessageType.DELAY),
            TopicConfig("tx", MessageType.TRANSACTION),
            TopicConfig("c", attributes={"cleanup.policy": "COMPACTION"}),
        ):
            broker.topics.create(topic)
        broker.groups.create(GroupConfig("g"))
        await send(broker, "gone", 3)
        await send(broker, "t", SENT // 2)
        broker.queues.commit("g", "t", 0, 5)
        broker.topics.delete("gone")
    async with started(directory) as broker:
        records = [OutgoingMessage("c", b"%d" % each, {"KEYS": f"k{each % 3}"}, queue_id=0) for each in range(1000)]
        await broker.delivery.send(records)
        assert await asyncio.to_thread(broker.maintenance.store.compact, {"c"}) == 1
    shutil.copytree(directory, older)
    async with started(directory) as broker:
        broker.topics.create(TopicConfig("t2"))
        broker.groups.create(GroupConfig("g2"))
        await send(broker, "t", SENT - SENT // 2)
        await send(broker, "later", 2, TIMER_DELIVER_MS=str(broker.clock.now_ms() + DAY_MS))
        await send(broker, "tx", 2, TRAN_MSG="true", PGROUP="p")
        broker.queues.commit("g", "t", 0, 40)
        broker.groups.set_request_mode("t", "g", RequestMode(RequestKind.POP, 0))


async def content(directory: Path) -> Content:
    """What clients find after a start over the directory."""
    async with started(directory) as broker:
        store = broker.maintenance.store
        found: Content = {"topics": [topic.name for topic in broker.topics.all()]}
        found["groups"] = [group.name for group in broker.groups.all()]
        found["modes"] = broker.groups.request_mode("t", "g")
        for topic in ("t", "gone", "c"):
            end = store.max_offset(topic, 0)
            entries = store.entries(topic, 0, store.min_offset(topic, 0), 2000)
            found[topic] = end, [body for entry in entries if (body := read(broker, entry)) is not None]
        found["by key"] = len(store.find_by_key("t", "k1"))
        found["offset"] = broker.queues.committed_offset("g", "t", 0)
        found["waiting"] = broker.maintenance.timers.pending, broker.maintenance.open_transactions
        return found


def read(broker: Broker, entry: Any) -> bytes | None:
    with contextlib.suppress(StoreError):
        return decode_record(broker.maintenance.store.read(entry)).body
    return None


def files_of(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(each for each in path.rglob("*") if each.is_file() and each.name != "lock")
    return [each for each in (path, path.with_name(path.name + ".bak")) if each.exists()]


def make_missing(directory: Path, path: Path, older: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else [each.unlink() for each in files_of(path)]


def make_empty(directory: Path, path: Path, older: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
        path.mkdir()
    for each in files_of(path):
        each.write_bytes(b"")


def make_damaged(directory: Path, path: Path, older: Path) -> None:
    for each in files_of(path):
        content = bytearray(each.read_bytes())
        middle = len(content.rstrip(b"\0")) // 2
        content[middle] ^= 0x10
        each.write_bytes(content)


def make_older(directory: Path, path: Path, older: Path) -> None:
    source = older / path.relative_to(directory)
    make_missing(directory, path, older)
    if source.is_dir():
        shutil.copytree(source, path)
    for each in () if source.is_dir() else files_of(source):
        shutil.copy(each, path.parent / each.name)


def one_missing(directory: Path, path: Path, older: Path) -> None:
    path.unlink()


def one_damaged(directory: Path, path: Path, older: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


SPOILERS: dict[str, Callable[[Path, Path, Path], None]] = {
    "missing": make_missing,
    "empty": make_empty,
    "damaged": make_damaged,
    "older": make_older,
    "one copy missing": one_missing,
    "one copy damaged": one_damaged,
}

DOCUMENT = {"missing": MISSING, "empty": UNREADABLE, "damaged": UNREADABLE, "older": STARTS}
COPIED = {"one copy missing": WHOLE, "one copy damaged": WHOLE}
DERIVED = dict.fromkeys(("missing", "empty", "damaged", "older"), WHOLE)

OUTCOMES: dict[str, dict[str, str]] = {
    "store": {"missing": MISSING, "empty": MISSING, "older": STARTS},
    "store/commitlog": {"missing": LACKS, "empty": LACKS, "damaged": STARTS, "older": LACKS},
    "store/commitlog/first": {"missing": LACKS, "empty": LACKS, "damaged": STARTS},
    "store/commitlog/second": {"missing": LACKS, "empty": LACKS, "damaged": STARTS},
    "store/commitlog/last": {"missing": LACKS, "empty": LACKS, "damaged": STARTS},
    "store/consumequeue": DERIVED | {"damaged": STARTS},
    "store/consumequeue/t": DERIVED | {"damaged": STARTS},
    "store/index": DERIVED,
    "store/timers": DERIVED,
    "store/compaction": {"missing": MISSING, "empty": MISSING, "damaged": STARTS, "older": WHOLE},
    "store/compaction/c/0": {"missing": MISSING, "empty": MISSING, "damaged": STARTS, "older": WHOLE},
    "store/checkpoint": DERIVED | COPIED,
    "store/flushed": DERIVED,
    "store/format": DERIVED,
    "store/lock": {"missing": WHOLE, "empty": WHOLE},
    "store/deleted-topics": DOCUMENT | COPIED,
    "store/manifest": DERIVED | COPIED,
    "manifest": DERIVED | COPIED,
    "config": {"missing": MISSING, "empty": MISSING, "damaged": UNREADABLE, "older": MISSING},
    "config/topics.json": DOCUMENT | COPIED,
    "config/groups.json": DOCUMENT | COPIED,
    "config/offsets.json": DOCUMENT | COPIED,
    "config/request_modes.json": DOCUMENT | COPIED | {"older": MISSING},
    "config/transactions.json": DERIVED | COPIED,
}

CASES = [(part, spoil) for part, spoils in OUTCOMES.items() for spoil in spoils]


@pytest.fixture(scope="module")
def filled() -> Iterator[tuple[Path, Path, Content]]:
    with tempfile.TemporaryDirectory(prefix="millstream-test-", dir=MEMORY) as name:
        whole, older = Path(name) / "whole", Path(name) / "older"
        asyncio.run(fill(whole, older))
        shutil.copytree(whole, Path(name) / "copy")
        yield whole, older, asyncio.run(content(Path(name) / "copy"))


@pytest.fixture
def directory(filled: tuple[Path, Path, Content]) -> Iterator[Path]:
    copy = filled[0].parent / "spoiled"
    shutil.copytree(filled[0], copy)
    yield copy
    shutil.rmtree(copy)


def place_of(directory: Path, part: str) -> Path:
    numbers = {"first": 0, "second": 1, "last": -1}
    path = directory / part
    return sorted(path.parent.iterdir())[numbers[path.name]] if path.name in numbers else path


def tree(directory: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(directory.rglob("*"))}


def test_the_directory_of_the_matrix_has_every_kind_of_part(filled: tuple[Path, Path, Content]) -> None:
    whole, _, found = filled
    assert found["topics"] == ["c", "later", "t", "t2", "tx"]
    assert (len(found["t"][1]), found["gone"][1], found["c"][0]) == (SENT, [], 1000)
    assert (found["offset"], found["waiting"]) == (40, (2, 2))
    assert all(place_of(whole, part).exists() for part in OUTCOMES)
    known = {part.partition("/")[2] for part in OUTCOMES if part.startswith("store/")}
    assert {path.name for path in (whole / "store").iterdir() if path.suffix != ".bak"} <= known


@pytest.mark.parametrize(("part", "spoil"), CASES)
def test_a_start_over_each_spoiled_part_loses_nothing_silently(
    filled: tuple[Path, Path, Content], directory: Path, part: str, spoil: str
) -> None:
    whole, older, expected = filled
    path, outcome = place_of(directory, part), OUTCOMES[part][spoil]
    SPOILERS[spoil](directory, path, older)
    if outcome in (WHOLE, STARTS):
        found = asyncio.run(content(directory))
        assert outcome == STARTS or found == expected
        assert asyncio.run(content(directory)) == found
        return
    before = tree(directory)
    with pytest.raises(MillstreamError) as refused:
        asyncio.run(content(directory))
    assert refused.value.name == outcome
    assert tree(directory) == before, "a start that is refused changes nothing"
    named = path if outcome != LACKS else directory / "store" / "commitlog"
    assert str(named) in str(refused.value) or str(path) in str(refused.value)
    assert "millstream store repair" in str(refused.value)
    goes_on_without(directory)
    shutil.rmtree(directory)
    shutil.copytree(whole, directory)
    assert asyncio.run(content(directory)) == expected, "what was put back is all there"


def goes_on_without(directory: Path) -> None:
    """The one way on that the refusal names leads to a start, and to another one after it."""
    while losses := all_losses(directory):
        accept_losses(directory, [loss.part for loss in losses])
    found = asyncio.run(content(directory))
    assert asyncio.run(content(directory)) == found


def test_a_data_directory_is_for_its_owner_alone(filled: tuple[Path, Path, Content]) -> None:
    everything = [filled[0], *filled[0].rglob("*")]
    wide = [path for path in everything if path.stat().st_mode & 0o077]
    assert wide == []


def test_a_directory_of_an_earlier_release_gets_its_manifests_at_its_first_whole_start(
    filled: tuple[Path, Path, Content], directory: Path
) -> None:
    for path in [*directory.glob("manifest*"), *(directory / "store").glob("manifest*")]:
        path.unlink()
    forget_the_manifest(directory)
    assert asyncio.run(content(directory)) == filled[2]
    assert StoreManifest(directory).load() == StoreManifest(filled[0]).load()
    assert StoreManifest(directory / "store").load() == StoreManifest(filled[0] / "store").load()


def test_what_an_earlier_release_let_go_meanwhile_is_not_asked_for(directory: Path) -> None:
    """It knows no manifest: it removes a compacted topic and the log's beginning, and notes nothing."""
    StoreManifest(directory / "store").note_log_start(0)
    StoreManifest(directory / "store").note("compaction/deleted/0")
    place_of(directory, "store/commitlog/first").unlink()
    forget_the_manifest(directory)
    found = asyncio.run(content(directory))
    assert asyncio.run(content(directory)) == found


def forget_the_manifest(directory: Path) -> None:
    checkpoint = Snapshot(directory / "store" / "checkpoint")
    document = json.loads(checkpoint.load() or b"")
    del document["knows_manifest"]
    checkpoint.save(json.dumps(document).encode())


def test_a_part_that_a_crash_left_without_its_note_is_noted_by_the_next_start(directory: Path) -> None:
    StoreManifest(directory).forget(["config/topics.json"])
    StoreManifest(directory / "store").forget(["commitlog", "deleted-topics", "compaction/c/0"])
    asyncio.run(content(directory))
    noted = StoreManifest(directory).load()
    assert noted is not None
    assert "config/topics.json" in noted.parts
    noted = StoreManifest(directory / "store").load()
    assert noted is not None
    assert noted.parts == {"commitlog", "deleted-topics", "compaction/c/0"}


def test_a_part_that_is_not_missing_cannot_be_accepted_as_lost(directory: Path) -> None:
    before = tree(directory)
    with pytest.raises(StartRefused, match="'store/commitlog' is not missing") as refused:
        accept_losses(directory, ["store/commitlog"])
    assert refused.value.name == "LOSS_UNKNOWN"
    (directory / "config" / "topics.json").write_bytes(b"")
    (directory / "config" / "topics.json.bak").write_bytes(b"")
    accept_losses(directory, ["config"])
    kept = sorted(path.name for path in (directory / "config").glob("topics.json*"))
    assert kept == ["topics.json.bak.damaged", "topics.json.damaged"]
    assert len(tree(directory)) == len(before)


def test_nothing_is_accepted_for_a_directory_that_a_server_holds(directory: Path) -> None:
    async def attempt() -> None:
        async with started(directory):
            with pytest.raises(StartRefused) as refused:
                accept_losses(directory, ["store/commitlog"])
            assert refused.value.name == "DATA_DIRECTORY_IN_USE"

    asyncio.run(attempt())
