"""What the disk of one replica has damaged comes back from another one, and is reported while it does not."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from local_set import LocalSet

from millstream.model.errors import MillstreamError, StoreError
from millstream.server.replicas import log_mender
from millstream.server.replicas.replicated_broker import ReplicaRole, ReplicatedBroker
from millstream.server.replicas.set_report import set_report
from millstream.store.damage.log_mending import SoundRange
from patience import PATIENCE_S, eventually

MakeSet = Callable[..., LocalSet]


@pytest.fixture
async def replica_set(tmp_path: Path) -> AsyncIterator[MakeSet]:
    made: list[LocalSet] = []

    def make(**settings: Any) -> LocalSet:
        made.append(LocalSet(tmp_path, **settings))
        return made[-1]

    yield make
    for one in made:
        await one.close()


def path_of(found: LocalSet, name: str) -> Path:
    return found.directory / name / "store" / "commitlog" / f"{0:020}"


def flip(found: LocalSet, name: str, *places: int) -> None:
    with path_of(found, name).open("r+b") as file:
        for place in places:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 8]))


def log_of(found: LocalSet, name: str, end: int) -> bytes:
    with path_of(found, name).open("rb") as file:
        return file.read(end)


def place_of(replicated: ReplicatedBroker, queue_offset: int) -> int:
    """A byte in the middle of a message."""
    (entry,) = replicated.store.entries("orders", 0, queue_offset, 1)
    return entry.log_offset + entry.size_bytes // 2


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not await holds():
        assert time.monotonic() < deadline_s


async def reads(found: LocalSet, bodies: list[bytes]) -> bool:
    try:
        read = await found.bodies()
    except MillstreamError as error:
        if error.name != "RECORD_BEING_MENDED":
            raise
        return False
    assert read == bodies, "a damaged message was passed over"
    return True


async def begin(found: LocalSet, *names: str, count: int = 5) -> list[bytes]:
    await found.start(*names)
    await found.make_topic()
    bodies = [b"%d" % number * 20 for number in range(count)]
    await found.send(*bodies)
    await eventually(lambda: len({found[name].store.confirmed_log_offset for name in names}) == 1)
    return bodies


@pytest.mark.parametrize("hurt", ["a", "b"], ids=["a master asks its set", "a replica asks its set"])
async def test_what_a_pass_through_the_log_finds_is_fetched_again(
    replica_set: MakeSet, hurt: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = replica_set()
    await begin(found, "a", "b")
    end = found["a"].log.end
    right = log_of(found, "a", end)
    flip(found, hurt, 40, end // 2, end - 30)
    mender = found[hurt].mender
    mender._pass, mender._next_look_s = type(mender._pass)(), 0.0
    mender._news.set()
    await eventually(lambda: log_of(found, hurt, end) == right and not mender.is_damaged)
    assert mender.mended_bytes > 0
    assert sum("MS-4017" in record.getMessage() for record in caplog.records) == 1, "one line, however many places"


async def test_a_message_that_is_damaged_at_the_master_is_read_once_it_is_mended(replica_set: MakeSet) -> None:
    found = replica_set(scrub_bytes_per_s=0)
    bodies = await begin(found, "a", "b")
    flip(found, "a", place_of(found["a"], 2))
    await until(lambda: reads(found, bodies))
    assert found["a"].mender.mended_bytes > 0
    assert not found["a"].mender.is_damaged


async def test_a_replica_whose_log_was_damaged_while_it_was_down_is_whole_again(replica_set: MakeSet) -> None:
    found = replica_set()
    bodies = await begin(found, "a", "b", "c")
    end = found["a"].log.end
    right = log_of(found, "a", end)
    place = place_of(found["b"], 3)
    await found.stop("b")
    # As after a crash: the start scans what is behind the checkpoint, and meets the damage there.
    (found.directory / "b" / "store" / "checkpoint").unlink()
    (found.directory / "b" / "store" / "checkpoint.bak").unlink(missing_ok=True)
    flip(found, "b", place)
    await found.add("b")
    await eventually(lambda: found["b"].mender.mended_bytes > 0 and not found["b"].mender.is_damaged)
    assert log_of(found, "b", end) == right
    await found.settle(3)
    await found.stop("a")
    await found.stop("c")
    await eventually(lambda: found["b"].role is ReplicaRole.MASTER)
    await found.settle(1)
    assert await found.bodies() == bodies, "the queues lack what the start passed over"


async def test_damage_that_no_replica_can_mend_is_reported_and_costs_nothing_else(
    replica_set: MakeSet, caplog: pytest.LogCaptureFixture
) -> None:
    found = replica_set(scrub_bytes_per_s=0)
    bodies = await begin(found, "a", "b")
    place = place_of(found["a"], 2)
    flip(found, "a", place)
    flip(found, "b", place)
    mender = found["a"].mender
    await until(lambda: passes_over(found, bodies))
    assert mender.damaged_bytes > 0
    await eventually(lambda: found["b"].mender.damaged_bytes > 0)

    def reported() -> tuple[int, int]:
        report = set_report(found["a"], ())
        assert report is not None
        return report.damaged_bytes, report.replicas[0].damaged_bytes

    await eventually(lambda: min(reported()) > 0)
    assert found["b"].heartbeat().is_damaged
    await eventually(lambda: mender._attempts > 3)
    told = [record for record in caplog.records if "MS-4017" in record.getMessage()]
    assert 2 <= len(told) <= 4, "two lines for each of the two, however often it is tried"
    await found.send(b"more")
    assert await found.bodies() == [*bodies[:2], *bodies[3:], b"more"]


async def test_a_replica_with_damage_is_elected_only_where_no_whole_one_is(replica_set: MakeSet) -> None:
    found = replica_set()
    await begin(found, "a", "b", "c")
    damage = found["b"]._own.damage
    found["b"].mender._next_try_s = found["b"].mender._next_look_s = float("inf")
    damage.note(0, 100)
    assert found["b"].mender.is_damaged
    await eventually(lambda: _is_known(found, "b"))
    await found.stop("a")
    await eventually(lambda: found["c"].role is ReplicaRole.MASTER)
    await found.settle(2)
    await found.stop("c")
    await eventually(lambda: found["b"].role is ReplicaRole.MASTER)


def _is_known(found: LocalSet, name: str) -> bool:
    role = found.nameserver.controller_role
    assert role is not None
    beat = role.controller.liveness.find("broker-a", found[name].identity.broker_id)
    return beat is not None and beat.is_damaged


async def test_a_replica_gives_nothing_of_a_log_that_went_on_otherwise(replica_set: MakeSet) -> None:
    found = replica_set()
    await begin(found, "a", "b")
    end, (epoch, start) = found["b"].log.end, found["b"].log.epochs.starts[-1]
    right = {"clusterName": "DefaultCluster", "brokerName": "broker-a", "epoch": epoch, "epochStart": start}
    place = {"startOffset": 0, "endOffset": end}
    address = found.address("b")
    answer = await found.ask(address, 9124, **right, **place)
    assert (answer.code, bytes(answer.body)) == (0, log_of(found, "a", end))
    for wrong in (
        {"epoch": epoch + 1},
        {"epochStart": start + 1},
        {"brokerName": "broker-b"},
        {"endOffset": end + 1},
        {"startOffset": end},
    ):
        refused = await found.ask(address, 9124, **{**right, **place, **wrong})
        assert refused.code != 0, wrong
        assert not refused.body


async def test_a_new_replica_makes_a_master_find_what_is_damaged_at_it(replica_set: MakeSet) -> None:
    found = replica_set(scrub_bytes_per_s=0)
    bodies = await begin(found, "a", "b")
    end = found["a"].log.end
    right = log_of(found, "a", end)
    flip(found, "a", place_of(found["a"], 1))
    await found.add("c")
    await found.settle(3)
    assert log_of(found, "a", end) == log_of(found, "c", end) == right
    assert await found.bodies() == bodies


async def test_what_no_replica_had_is_mended_when_one_comes_back_that_has_it(
    replica_set: MakeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_mender, "HOLD_S", 0.2)
    found = replica_set(scrub_bytes_per_s=0)
    bodies = await begin(found, "a", "b")
    await found.stop("b")
    flip(found, "a", place_of(found["a"], 2))
    mender = found["a"].mender
    await until(lambda: passes_over(found, bodies))
    assert mender.is_damaged
    await found.add("b")
    await eventually(lambda: mender.mended_bytes > 0)
    assert found["a"]._own.damage.needs_rebuild, "what is derived from the log may have passed the record over"
    assert await found.bodies() == bodies


async def passes_over(found: LocalSet, bodies: list[bytes]) -> bool:
    try:
        return await found.bodies() == bodies[:2] + bodies[3:]
    except MillstreamError:
        return False


async def test_places_where_nothing_of_the_log_is_damaged_hold_no_reader_up(replica_set: MakeSet) -> None:
    found = replica_set(scrub_bytes_per_s=0)
    await begin(found, "a", "b")
    (entry,) = found["a"].store.entries("orders", 0, 2, 1)
    wrong = entry._replace(log_offset=entry.log_offset + 1)
    with pytest.raises(MillstreamError) as first:
        found["a"].store.read(wrong)
    assert first.value.name == "RECORD_BEING_MENDED"

    def is_passed_over() -> bool:
        with pytest.raises(MillstreamError) as later:
            found["a"].store.read(wrong)
        return later.value.name == "RECORD_DAMAGED"

    await eventually(is_passed_over)
    assert not found["a"].mender.is_damaged


async def test_many_damaged_places_are_one_line_in_the_log(
    replica_set: MakeSet, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replica_set(scrub_bytes_per_s=0)
    await begin(found, "a", "b", count=8)
    mender, end = found["a"].mender, found["a"].log.end
    right = log_of(found, "a", end)
    flip(found, "a", *(place_of(found["a"], number) for number in (1, 3, 5)))
    find_replicas = found["a"]._membership.find_replicas

    async def fail() -> list[str]:
        raise StoreError("FILE_NOT_OPENED", "planted")

    monkeypatch.setattr(found["a"]._membership, "find_replicas", fail)
    mender.doubt(0)
    await eventually(lambda: len(found["a"]._own.damage.places) == 3 and mender._attempts > 3)
    monkeypatch.setattr(found["a"]._membership, "find_replicas", find_replicas)
    await eventually(lambda: not mender.is_damaged)
    assert log_of(found, "a", end) == right
    told = [record for record in caplog.records if "MS-4017" in record.getMessage()]
    assert len(told) == 2, "what was found, and that it stays so for now"


async def test_mending_touches_nothing_behind_the_damage(replica_set: MakeSet) -> None:
    found = replica_set(scrub_bytes_per_s=0)
    await begin(found, "a", "b")
    start, end = found["a"].log.start, found["a"].log.end
    flip(found, "b", 40)
    written: list[tuple[int, int]] = []
    mend = found["b"].store.mending.mend

    def note(sound: SoundRange) -> set[str]:
        written.append((sound.start, sound.end))
        return mend(sound)

    found["b"].store.mending.mend = note  # type: ignore[method-assign]
    found["b"].mender.doubt(0)
    await eventually(lambda: found["b"].mender.mended_bytes > 0)
    assert [first for first, _ in written] == [start]
    assert written[0][1] < end // 2
