"""Two brokers of one name and one object store, which is a mistake: the second one is refused and destroys nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from crash.faulty_objects import FaultyObjects, ObjectFault
from test_cold_tier import OPTIONS, SMALL, cold_bench, fill, make_cold, read_all, upload_all

from millstream.broker import cold_owner
from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.cold_tier import GRACE_MS
from millstream.model.clock import ManualClock
from millstream.model.errors import MillstreamError
from millstream.server.restoring import restore_broker
from millstream.tiered.claims import OwnerClaim, OwnerClaims
from millstream.tiered.verification import ORPHAN_MS

CLAIMS = "ms1-owners/"


@pytest.fixture
def objects() -> FaultyObjects:
    return FaultyObjects()


def of_messages(objects: FaultyObjects) -> dict[str, bytes]:
    return {key: data for key, data in objects.objects.items() if not key.startswith(CLAIMS)}


async def start(directory: Path, objects: FaultyObjects, clock: ManualClock, name: str = "broker-a") -> Broker:
    """A broker that has asked nothing of the store."""
    options = BrokerOptions(store=SMALL, tiered=OPTIONS)
    broker = Broker(directory, name=name, options=options, clock=clock, open_objects=lambda: objects)
    await broker.start()
    return broker


async def refused(broker: Broker) -> str:
    """The words of the refusal at whatever would change objects."""
    words = set()
    for act in (broker.cold.upload_due, broker.cold.clean, lambda: broker.cold.collect("", deletes=True)):
        with pytest.raises(MillstreamError) as found:
            await act()
        assert found.value.name == "PREFIX_TAKEN"
        words.add(str(found.value))
    [one] = words
    return one


async def test_a_second_broker_of_a_name_is_refused_by_the_name_of_the_first_and_destroys_nothing(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path / "first", objects, clock) as bench:
        names = await fill(bench)
        await make_cold(bench)
        await upload_all(bench)
        there = of_messages(objects)
        clock.advance_ms(max(0, 10 * ORPHAN_MS - clock.now_ms()))
        second = await start(tmp_path / "second", objects, clock)
        words = await refused(second)
        assert f"{tmp_path}/first on " in words
        assert f"{tmp_path}/second on " in words
        assert "MS-4039" in words
        assert of_messages(objects) == there
        await second.close()
        # The first one is as before, now and after a start.
        assert await read_all(bench) == [*names, "last"]
        await bench.send("more")
        await upload_all(bench)
    async with cold_bench(tmp_path / "first", objects, clock) as bench:
        assert await read_all(bench) == [*names, "last", "more"]
        await bench.send("and more")
        await upload_all(bench)
    assert len([key for key in objects.objects if key.startswith(CLAIMS)]) == 1


async def test_brokers_of_other_names_share_a_store(tmp_path: Path, objects: FaultyObjects) -> None:
    clock = ManualClock()
    first = await start(tmp_path / "a", objects, clock)
    second = await start(tmp_path / "b", objects, clock, "broker-b")
    for broker in (first, second):
        await broker.cold.upload_due()
    for broker in (first, second):
        await broker.close()


async def test_a_restored_broker_takes_over_and_the_lost_one_is_refused_when_it_comes_back(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path / "lost", objects, clock) as bench:
        names = await fill(bench)
        await make_cold(bench)
        await upload_all(bench)
    for name in ("drill", "restored"):
        restore_broker(objects, tmp_path / name, segment_bytes=SMALL.segment_bytes)
    # A restore alone takes nothing over: it may be a drill.
    lost = await start(tmp_path / "lost", objects, clock)
    await lost.cold.upload_due()
    await lost.close()
    async with cold_bench(tmp_path / "restored", objects, clock) as bench:
        assert await read_all(bench) == [*names, "last"]
        await bench.send("more")
        await upload_all(bench)
        there = of_messages(objects)
        for name in ("lost", "drill"):
            other = await start(tmp_path / name, objects, clock)
            assert f"{tmp_path}/restored on " in await refused(other)
            await other.close()
        clock.advance_ms(GRACE_MS + 1)
        assert of_messages(objects) == there
        assert await read_all(bench) == [*names, "last", "more"]
    async with cold_bench(tmp_path / "restored", objects, clock) as bench:
        assert await read_all(bench) == [*names, "last", "more"]


async def test_a_broker_that_runs_notices_that_its_name_was_taken_over(
    tmp_path: Path, objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path / "old", objects, clock) as bench:
        await fill(bench, 20)
        await upload_all(bench)
        restore_broker(objects, tmp_path / "new", segment_bytes=SMALL.segment_bytes)
        async with cold_bench(tmp_path / "new", objects, clock):
            await bench.broker.cold.clean()
            monkeypatch.setattr(cold_owner, "RECHECK_S", 0.0)
            assert f"{tmp_path}/new on " in await refused(bench.broker)


async def test_a_directory_from_before_there_were_claims_claims_its_name(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path / "old", objects, clock) as bench:
        names = await fill(bench, 50)
        await upload_all(bench)
    for key in [key for key in objects.objects if key.startswith(CLAIMS)]:
        del objects.objects[key]
    async with cold_bench(tmp_path / "old", objects, clock) as bench:
        assert await read_all(bench) == names
    # Nor does a claim that an operator deleted stand in the way of whoever comes next.
    for key in [key for key in objects.objects if key.startswith(CLAIMS)]:
        del objects.objects[key]
    async with cold_bench(tmp_path / "another", objects, clock) as bench:
        await bench.send("x")


async def test_a_claim_whose_answer_is_lost_is_ones_own(tmp_path: Path, objects: FaultyObjects) -> None:
    broker = await start(tmp_path / "a", objects, ManualClock())
    objects.plan.extend([None, ObjectFault.AFTER])
    with pytest.raises(MillstreamError, match="answer was lost"):
        await broker.cold.check_owner()
    await broker.cold.check_owner()
    shutil.copytree(tmp_path / "a", tmp_path / "crashed")
    await broker.close()
    again = await start(tmp_path / "crashed", objects, ManualClock())
    await again.cold.check_owner()
    await again.close()
    assert len(objects.objects) == 1


async def test_of_two_first_claims_one_wins(tmp_path: Path, objects: FaultyObjects) -> None:
    broker = await start(tmp_path / "slow", objects, ManualClock())

    class Quicker(FaultyObjects):
        def put(self, key: str, data: bytes, *, create_only: bool = False) -> None:
            OwnerClaims(objects, "DefaultCluster", "broker-a").put(1, OwnerClaim("0" * 32, "/quick on host", 5))
            objects.put(key, data, create_only=create_only)

    quicker = Quicker()
    quicker.objects, quicker._modified_ms = objects.objects, objects._modified_ms
    broker.cold_owner._claims = OwnerClaims(quicker, "DefaultCluster", "broker-a")
    with pytest.raises(MillstreamError, match="/quick on host, since 1970-01-01") as found:
        await broker.cold.check_owner()
    assert found.value.name == "PREFIX_TAKEN"
    await broker.close()


async def test_what_is_no_claim_is_named(tmp_path: Path, objects: FaultyObjects) -> None:
    broker = await start(tmp_path / "a", objects, ManualClock())
    objects.put(OwnerClaims(objects, "DefaultCluster", "broker-a").key(3), b"whatever")
    with pytest.raises(MillstreamError, match=r"0000000003.json' is no claim of a broker"):
        await broker.cold.upload_due()
    await broker.close()
