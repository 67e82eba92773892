"""A broker's whole state over crashes, and who may look at it."""

from __future__ import annotations

import shutil
from pathlib import Path

from broker_bench import open_bench

from millstream.broker.queues.consumer_groups import RequestKind, RequestMode
from millstream.broker.state.state_log import STATE_TOPIC
from millstream.model.group import GroupConfig
from millstream.model.topic import Permission, TopicConfig
from millstream.security.users import User, UserKind

POPS = RequestMode(RequestKind.POP, 2)


async def test_all_state_is_there_after_a_crash_before_any_document_is_saved(tmp_path: Path) -> None:
    async with open_bench(tmp_path / "a") as bench:
        broker = bench.broker
        broker.topics.create(TopicConfig("orders"))
        broker.topics.create(TopicConfig("gone"))
        broker.topics.delete("gone")
        broker.groups.create(GroupConfig("audit", max_attempts=3))
        broker.groups.set_request_mode("orders", "audit", POPS)
        broker.maintenance.permission.put(Permission.READ)
        broker.users.create_user(User("ann", "secret-of-ann", UserKind.SUPER))
        assert not (tmp_path / "a" / "config" / "topics.json").exists()
        shutil.copytree(tmp_path / "a", tmp_path / "b")
    async with open_bench(tmp_path / "b") as bench:
        broker = bench.broker
        assert broker.topics.find("orders") == TopicConfig("orders")
        assert broker.topics.find("gone") is None
        assert broker.groups.get("audit").max_attempts == 3
        assert broker.groups.request_mode("orders", "audit") == POPS
        assert broker.maintenance.permission.is_drained
        assert broker.users.get("ann").secret == "secret-of-ann"
        assert broker.users.revision == 1


async def test_documents_replace_changes_that_are_let_go(tmp_path: Path) -> None:
    async with open_bench(tmp_path) as bench:
        bench.broker.topics.create(TopicConfig("orders"))
        await bench.broker.maintenance.retain()
        assert (tmp_path / "config" / "topics.json").exists()
        assert bench.broker._state.saved_offset == bench.broker.maintenance.store.max_offset(STATE_TOPIC, 0)


async def test_nobody_sees_records_of_the_state(tmp_path: Path) -> None:
    async with open_bench(tmp_path) as bench:
        broker = bench.broker
        broker.users.create_user(User("ann", "secret-of-ann", UserKind.SUPER))
        entries = broker.maintenance.store.entries(STATE_TOPIC, 0, 0, 10)
        assert entries
        assert [broker.queues.record_at(entry.log_offset) for entry in entries] == [None] * len(entries)
