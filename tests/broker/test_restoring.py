"""A broker whose directory is lost comes back from its object store with all that had gone up."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from broker_bench import bodies
from crash.faulty_objects import FaultyObjects, ObjectFault
from test_cold_tier import SMALL, cold_bench, fill, make_cold, read_all, upload_all

from millstream.broker.cold_manifest import decode_manifest
from millstream.broker.cold_tier import GRACE_MS
from millstream.model.clock import ManualClock
from millstream.model.errors import StartRefused
from millstream.model.group import GroupConfig
from millstream.model.message import OutgoingMessage
from millstream.model.operations import AckRequest
from millstream.model.topic import TopicConfig
from millstream.server.restoring import RestoredBroker, restore_broker
from millstream.store.files import FileLayer
from millstream.tiered.manifests import KEPT_MANIFESTS, Manifests, list_brokers


@pytest.fixture
def objects() -> FaultyObjects:
    return FaultyObjects()


def restore(objects: FaultyObjects, directory: Path, broker: str = "") -> RestoredBroker:
    return restore_broker(objects, directory, broker, segment_bytes=SMALL.segment_bytes)


async def test_every_message_that_was_up_is_there_in_order_once(tmp_path: Path, objects: FaultyObjects) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path / "lost", objects, clock) as bench:
        names = await fill(bench)
        await make_cold(bench)
        await upload_all(bench)
    shutil.rmtree(tmp_path / "lost")
    found = restore(objects, tmp_path / "new")
    assert (found.cluster, found.broker) == ("DefaultCluster", "broker-a")
    async with cold_bench(tmp_path / "new", objects, clock) as bench:
        assert await read_all(bench) == [*names, "last"]
        [*_, held] = [one for one in bench.broker.queues.ranges("t") if one.queue_id == 0]  # type: ignore[union-attr]
        assert (held.min_offset, held.max_offset) == (0, len(names) + 1)
        await bench.send("next")
        result = await bench.pull(len(names) + 1)
        assert (result.next_offset, result.max_offset) == (len(names) + 2, len(names) + 2)
        assert await read_all(bench) == [*names, "last", "next"]
        # What comes now goes up as well, and survives the next loss.
        await upload_all(bench)
    shutil.rmtree(tmp_path / "new")
    restore(objects, tmp_path / "newer")
    async with cold_bench(tmp_path / "newer", objects, clock) as bench:
        assert await read_all(bench) == [*names, "last", "next"]


async def test_a_restored_broker_takes_what_was_behind_the_last_upload_for_no_loss_by_a_full_disk(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path / "lost", objects, clock) as bench:
        await fill(bench)
        await upload_all(bench)
    restore(objects, tmp_path / "new")
    for _ in range(2):
        async with cold_bench(tmp_path / "new", objects, clock) as bench:
            await bench.broker.cold.upload_due()
            assert bench.broker.cold.report().dropped_bytes == 0
    async with cold_bench(tmp_path / "new", objects, clock) as bench:
        await bench.send("next")
        await upload_all(bench)
        assert bench.broker.cold.report().dropped_bytes == 0
        assert bench.broker.cold.map.empty_rows() != []
        await bench.broker.cold.clean()
        assert bench.broker.cold.map.empty_rows() == []


async def test_groups_are_where_they_stood(tmp_path: Path, objects: FaultyObjects) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path / "lost", objects, clock) as bench:
        bench.broker.groups.create(GroupConfig("g", max_attempts=5))
        names = await fill(bench, 60)
        for one in await bench.pop(max_messages=10):
            bench.broker.delivery.ack(AckRequest("g", "t", one.handle))
        bench.broker.queues.commit("pullers", "t", 0, 20)
        await upload_all(bench)
    restore(objects, tmp_path / "new")
    async with cold_bench(tmp_path / "new", objects, clock) as bench:
        group = bench.broker.groups.find("g")
        assert group is not None
        assert group.max_attempts == 5
        assert bodies(await bench.pop(max_messages=2)) == names[10:12]
        assert bench.broker.queues.committed_offset("pullers", "t", 0) == 20


async def test_offsets_of_messages_that_did_not_go_up_are_not_given_again(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path / "lost", objects, clock) as bench:
        names = await fill(bench)
        bench.broker.maintenance.store.flush()
        while await bench.broker.cold.upload_due():
            pass
        uploaded = bench.broker.cold.map.bounds("t", 0)
    assert uploaded is not None
    restore(objects, tmp_path / "new")
    async with cold_bench(tmp_path / "new", objects, clock) as bench:
        await bench.send("next")
        assert await read_all(bench) == [*names[: uploaded[1]], "next"]
        assert bench.broker.maintenance.store.max_offset("t", 0) == len(names) + 1


async def test_a_manifest_that_was_not_put_is_put_at_the_next_look(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        await fill(bench, 10)
        bench.broker.maintenance.store.flush()
        objects.plan.extend([None, ObjectFault.BEFORE])
        with pytest.raises(Exception, match="does not answer"):
            await bench.broker.cold.upload_due()
        manifests = Manifests(objects, "DefaultCluster", "broker-a")
        assert manifests.keys() == []
        bench.broker.cold._uploaded_s = 1e9
        await bench.broker.cold.upload_due()
        [key] = manifests.keys()
        assert decode_manifest(key, objects.objects[key]).broker == "broker-a"


async def test_a_damaged_manifest_gives_way_to_the_one_before(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path / "lost", objects, ManualClock()) as bench:
        await fill(bench, 10)
        await upload_all(bench)
        await fill(bench, 10)
        await upload_all(bench)
    keys = Manifests(objects, "DefaultCluster", "broker-a").keys()
    objects.objects[keys[-1]] = objects.objects[keys[-1]][:-4]
    assert restore(objects, tmp_path / "new").key == keys[-2]


async def test_what_cannot_be_restored_is_refused_and_changes_nothing(tmp_path: Path, objects: FaultyObjects) -> None:
    with pytest.raises(StartRefused, match="nothing of a broker"):
        restore(objects, tmp_path / "new")
    async with cold_bench(tmp_path / "lost", objects, ManualClock()) as bench:
        await fill(bench, 10)
        await upload_all(bench)
    for broker in ("broker-b", "broker-c"):
        Manifests(objects, "DefaultCluster", broker).put(b"no manifest")
    objects.put("ms1/probe/1", b"")
    assert [*list_brokers(objects)] == [("DefaultCluster", f"broker-{letter}") for letter in "abc"]
    with pytest.raises(StartRefused, match="several"):
        restore(objects, tmp_path / "new")
    with pytest.raises(StartRefused, match="damaged"):
        restore(objects, tmp_path / "new", "broker-b")
    with pytest.raises(StartRefused, match="already"):
        restore(objects, tmp_path / "lost", "broker-a")
    assert not (tmp_path / "new").exists()


def test_only_the_last_manifests_are_kept_and_a_new_master_goes_on_counting(objects: FaultyObjects) -> None:
    for number in range(5):
        Manifests(objects, "c", "b").put(b"%d" % number)
    kept = Manifests(objects, "c", "b").keys()
    assert [objects.objects[key] for key in kept] == [b"2", b"3", b"4"][-KEPT_MANIFESTS:]


async def test_a_manifest_leads_to_nothing_that_was_deleted(tmp_path: Path, objects: FaultyObjects) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path / "lost", objects, clock) as bench:
        bench.broker.topics.create(TopicConfig("gone"))
        await bench.broker.delivery.send([OutgoingMessage("gone", b"x" * 9000, {}, queue_id=0)])
        names = await fill(bench, 20)
        await upload_all(bench)
        bench.broker.topics.delete("gone")
        bench.broker.cold._uploaded_s = 1e9
        await bench.broker.cold.upload_due()
        clock.advance_ms(GRACE_MS + 1)
        await bench.broker.cold.clean()
    restore(objects, tmp_path / "new")
    async with cold_bench(tmp_path / "new", objects, clock) as bench:
        assert bench.broker.topics.find("gone") is None
        assert {one.key for _, one in bench.broker.cold.map.objects} <= set(objects.objects)
        assert await read_all(bench) == names


async def test_a_restore_that_was_cut_off_is_made_again_and_until_then_nothing_starts(
    tmp_path: Path, objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with cold_bench(tmp_path / "lost", objects, clock) as bench:
        names = await fill(bench)
        await make_cold(bench)
        await upload_all(bench)
    rename, calls = FileLayer.rename, 0

    def cut_off(files: FileLayer, source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == cut_at:
            raise KeyboardInterrupt
        rename(files, source, target)

    monkeypatch.setattr(FileLayer, "rename", cut_off)
    for cut_at in (2, 4, 6, 100):
        calls = 0
        if cut_at < 100:
            with pytest.raises(KeyboardInterrupt):
                restore(objects, tmp_path / "new")
            with pytest.raises(StartRefused, match="did not end"):
                async with cold_bench(tmp_path / "new", objects, clock):
                    raise AssertionError("it started")
        else:
            restore(objects, tmp_path / "new")
    async with cold_bench(tmp_path / "new", objects, clock) as bench:
        assert await read_all(bench) == [*names, "last"]
    assert not list((tmp_path / "new").glob("aside*"))
