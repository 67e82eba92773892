"""Tiered storage in a set: the master alone uploads, and whoever is the next one has what went up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from crash.faulty_objects import FaultyObjects, ObjectFault
from local_set import LocalSet
from test_reads import applied, bodies_of, pull

from millstream.broker import cold_tier
from millstream.broker.cold_tier import GRACE_MS
from millstream.model.errors import MillstreamError
from millstream.protocol.remoting.codes import ResponseCode
from millstream.server import broker_role
from millstream.server.configuration.roles import Tiered
from millstream.server.replicas.replicated_broker import ReplicaRole, ReplicatedBroker
from millstream.server.restoring import restore_broker
from millstream.store.message_store import StoreOptions
from millstream.store.retention import RetentionPolicy
from millstream.tiered.cold_work import WorkHere
from millstream.tiered.places import ObjectPlace
from patience import eventually

BODIES = [b"%d " % number + b"x" * 1000 for number in range(200)]


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> FaultyObjects:
    """One object store for all replicas; they upload and clean when a test says so."""
    made = FaultyObjects()
    monkeypatch.setattr(ObjectPlace, "open", lambda _: made)
    # Another process would open another store.
    monkeypatch.setattr(cold_tier, "ColdProcess", lambda _place, _loop: WorkHere(made))
    monkeypatch.setattr(broker_role, "StoreOptions", partial(StoreOptions, segment_bytes=64 * 1024))
    for name in ("UPLOAD_INTERVAL_S", "CLEAN_INTERVAL_S"):
        monkeypatch.setattr(cold_tier, name, 1e6)
    return made


@pytest.fixture
async def replica_set(tmp_path: Path, objects: FaultyObjects) -> AsyncIterator[LocalSet]:
    made = ColdSet(tmp_path)
    yield made
    await made.close()


def chunks(objects: FaultyObjects) -> set[str]:
    """The keys of all objects that hold messages."""
    return {key for key in objects.objects if key.endswith(".msc")}


class ColdSet(LocalSet):
    """A set whose replicas have an object store."""

    async def add(self, directory: str, /, **changes: object) -> ReplicatedBroker:
        return await super().add(directory, tiered=Tiered(url="file:///nowhere", keep_hours=1000), **changes)


async def fill(found: LocalSet) -> None:
    await found.make_topic()
    await found.send(*BODIES)


async def upload(replicated: ReplicatedBroker) -> None:
    """Bring all up, as after the time that the settings give."""
    cold = replicated.broker.cold
    replicated.store.flush()
    cold._uploaded_s = -1e9
    await cold.upload_due()


async def let_go(replicated: ReplicatedBroker) -> None:
    """Let go of all of the log that nothing pins."""
    replicated.store.retention = RetentionPolicy(keep_ms=1)
    replicated.store.write_checkpoint()
    await replicated.broker.keep_followed()


def claims(objects: FaultyObjects) -> list[str]:
    return [key for key in objects.objects if key.startswith("ms1-owners/")]


async def claim(replicated: ReplicatedBroker, objects: FaultyObjects) -> None:
    """Claim the name, which waits until the replicas have the token."""
    owner = replicated.broker.cold_owner
    while owner._checked_s is None:
        await owner.check()
        await asyncio.sleep(0)
    assert len(claims(objects)) == 1


async def give_up(found: LocalSet, name: str, successor: str) -> None:
    await found.stop(name)
    await eventually(lambda: found[successor].role is ReplicaRole.MASTER)
    await found.settle(len(found._roles))


async def test_only_the_master_uploads_and_replicas_know_what_did(
    replica_set: LocalSet, objects: FaultyObjects
) -> None:
    found = replica_set
    await found.start("a", "b")
    await fill(found)
    assert found["b"].broker.cold._tasks == []
    await upload(found["a"])
    assert objects.calls.count("put") == len(objects.objects)
    keys = {one.key for _, one in found["a"].broker.cold.map.objects}
    assert keys == chunks(objects)
    await eventually(lambda: {one.key for _, one in found["b"].broker.cold.map.objects} == keys)


async def test_replicas_keep_their_log_until_they_know_that_it_went_up(
    replica_set: LocalSet, objects: FaultyObjects
) -> None:
    found = replica_set
    await found.start("a", "b")
    await fill(found)
    for name in "ab":
        await let_go(found[name])
        assert found[name].store.log_start == 0
    await upload(found["a"])
    await eventually(lambda: found["b"].broker.cold.first_needed() > 0)
    await let_go(found["a"])
    assert found["a"].store.log_start > 0
    await found.send(b"tail")
    await eventually(lambda: found["b"]._needed_by_set() > 0)
    await let_go(found["b"])
    assert found["b"].store.log_start > 0
    assert await found.bodies() == [*BODIES, b"tail"]


async def test_a_set_has_one_claim_whoever_is_its_master(
    replica_set: LocalSet, objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replica_set
    await found.start("a", "b")
    await fill(found)
    with monkeypatch.context() as patched:
        # What a failover may take back must not become a claim, which would be a stranger's then.
        patched.setattr(found["a"].store, "confirm", lambda _: None)
        await found["a"].broker.cold.check_owner()
        assert claims(objects) == []
    found["a"].store.confirm(found["a"].log.end)
    await claim(found["a"], objects)
    await give_up(found, "a", "b")
    await upload(found["b"])
    assert len(claims(objects)) == 1
    assert found["b"].broker.cold.map.uploaded_log_offset > 0


async def test_the_log_is_kept_until_the_replicas_have_the_row(
    replica_set: LocalSet, objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that a failover takes back must not have cost the log."""
    found = replica_set
    await found.start("a", "b")
    await fill(found)
    master = found["a"]
    with monkeypatch.context() as patched:
        patched.setattr(master.store, "confirm", lambda _: None)
        await upload(master)
        assert master.broker.cold.map.uploaded_log_offset > 0
        assert master.broker.cold.first_needed() == 0
    master.store.confirm(master.log.end)
    await eventually(lambda: master.broker.cold.first_needed() == master.broker.cold.map.uploaded_log_offset)


async def test_a_failover_within_an_upload_leaves_neither_a_hole_nor_a_double(
    replica_set: LocalSet, objects: FaultyObjects
) -> None:
    found = replica_set
    await found.start("a", "b")
    await fill(found)
    found["a"].broker.cold._options = cold_tier.TieredOptions(keep_hours=1000, stretch_bytes=32 * 1024)
    found["b"].broker.cold._options = found["a"].broker.cold._options
    found["a"].store.flush()
    await found["a"].broker.cold.upload_due()
    await claim(found["a"], objects)
    objects.plan.extend([ObjectFault.AFTER, ObjectFault.DENIED])
    with pytest.raises(MillstreamError, match="refuses"):
        await found["a"].broker.cold.upload_due()
    committed = {one.key for _, one in found["a"].broker.cold.map.objects}
    [orphan] = chunks(objects) - committed
    await give_up(found, "a", "b")
    successor = found["b"]
    assert successor.broker.cold.map.begun
    successor.store.flush()
    while successor.broker.cold.report().behind_bytes > 32 * 1024:
        await successor.broker.cold.upload_due()
    assert orphan not in objects.objects
    assert {one.key for _, one in successor.broker.cold.map.objects} == chunks(objects)
    assert committed <= chunks(objects)
    ranges = successor.broker.cold.map.ranges("orders", 0)
    assert ranges[0].first_queue_offset == 0
    for before, after in pairwise(ranges):
        assert before.next_queue_offset == after.first_queue_offset
    await let_go(successor)
    assert successor.store.log_start > 0
    assert await found.bodies() == BODIES


async def test_a_replica_gives_cold_messages_before_and_after_it_is_the_master(
    replica_set: LocalSet, objects: FaultyObjects
) -> None:
    found = replica_set
    await found.start("a", "b")
    await fill(found)
    await upload(found["a"])
    await eventually(lambda: found["b"].broker.cold.first_needed() > 0)
    await let_go(found["a"])
    await found.send(b"tail")
    await eventually(lambda: found["b"]._needed_by_set() > 0)
    await let_go(found["b"])
    assert found["b"].store.log_start > 0
    await applied(found, "b")
    # Readers that are far behind are sent to replicas.
    answer = await pull(found, "b", 0)
    assert (answer.code, answer.ext["minOffset"]) == (ResponseCode.SUCCESS, "0")
    assert bodies_of(answer) == BODIES[: len(bodies_of(answer))]
    lists = objects.calls.count("list")
    await give_up(found, "a", "b")
    assert await found.bodies() == [*BODIES, b"tail"]
    assert objects.calls.count("list") == lists


async def test_objects_are_deleted_only_once_the_replicas_have_their_removal(
    replica_set: LocalSet, objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replica_set
    await found.start("a", "b")
    await fill(found)
    master = found["a"]
    await upload(master)
    cold = master.broker.cold
    now_ms = cold._clock.now_ms()
    later_ms = now_ms + 2000 * 3_600_000
    with monkeypatch.context() as patched:
        patched.setattr(master.store, "confirm", lambda _: None)
        patched.setattr(cold._clock, "now_ms", lambda: later_ms)
        await cold.clean()
        patched.setattr(cold._clock, "now_ms", lambda: later_ms + GRACE_MS + 1)
        await cold.clean()
        assert cold.map.bounds("orders", 0) is None
        assert chunks(objects)
        patched.undo()
        master.store.confirm(master.log.end)
        await eventually(lambda: cold._state.settle())
        patched.setattr(cold._clock, "now_ms", lambda: later_ms + GRACE_MS + 1)
        await cold.clean()
        assert not chunks(objects)


async def test_a_set_begins_anew_with_a_restored_replica(
    replica_set: LocalSet, objects: FaultyObjects, tmp_path: Path
) -> None:
    found = replica_set
    await found.start("a", "b")
    await fill(found)
    cold = found["a"].broker.cold
    await upload(found["a"])
    await eventually(lambda: cold._state.settle())
    cold._changes_unsaid = 1
    await cold._put_manifest()
    await found.close()
    again = ColdSet(tmp_path / "again")
    restore_broker(objects, tmp_path / "again" / "a", segment_bytes=64 * 1024)
    try:
        await again.start("a", "b")
        assert await again.bodies() == BODIES
        await again.send(b"next")
        await again.stop("a")
        await again.settle(1)
        assert await again.bodies() == [*BODIES, b"next"]
    finally:
        await again.close()
