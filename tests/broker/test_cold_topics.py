"""Looks at thousands of topics give others their turn, and what changes meanwhile is not taken for what was there."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest

from millstream.broker import cold_topics
from millstream.broker.cold_topics import ColdTopics, run_in_turns
from millstream.broker.queues.topics import TopicRegistry
from millstream.model.topic import MessageType, TopicConfig
from millstream.store.snapshot import Snapshot

HOUR_MS = 3_600_000


class NoLog:
    """Takes all changes."""

    def append(self, changes: object, *, durable: bool = True) -> None:
        """See `ChangeLog`."""


def registry_of(directory: Path, *topics: TopicConfig) -> TopicRegistry:
    found = TopicRegistry(Snapshot(directory / "topics.json"))
    found.table.bind(NoLog())
    for topic in topics:
        found.apply_change(topic.name, topic)
    return found


async def test_topics_that_fit_the_pattern_and_keep_each_message_go_up(tmp_path: Path) -> None:
    registry = registry_of(
        tmp_path,
        TopicConfig("orders-1"),
        TopicConfig("orders-2", attributes={"cleanup.policy": "COMPACTION"}),
        TopicConfig("orders-3", message_type=MessageType.LITE),
        TopicConfig("orders-4"),
        TopicConfig("other"),
        TopicConfig("rmq_sys_orders-5"),
    )
    found = await ColdTopics(registry, "*orders-*", 72).find_going({"orders-4": 7}.get)  # type: ignore[arg-type]
    assert found == {"orders-1": None, "orders-4": 7}


async def test_topics_share_objects_with_those_that_live_about_as_long(tmp_path: Path) -> None:
    hours = {"a": "1", "b": "3", "c": "2", "d": "100"}
    topics = [TopicConfig(name, attributes={"reserve.time": kept}) for name, kept in hours.items()]
    cold = ColdTopics(registry_of(tmp_path, *topics, TopicConfig("usual")), "*", 72)
    classes = await cold.classes_of(["a", "b", "c", "d", "usual", "deleted"])
    assert classes == {"a": 1, "b": 2, "c": 2, "d": 7, "usual": 7, "deleted": 7}
    assert cold.find_lifetimes() == {name: int(kept) * HOUR_MS for name, kept in hours.items()}
    assert cold.keep_ms == 72 * HOUR_MS


async def test_others_have_their_turn_and_topics_that_come_then_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_topics, "TOPICS_AT_ONCE", 3)
    registry = registry_of(tmp_path, *(TopicConfig(f"t{number}") for number in range(10)))
    cold = ColdTopics(registry, "*", 72)
    asked: list[str] = []

    def count_from(topic: str) -> int:
        if not asked:
            asyncio.get_running_loop().call_soon(change)
        asked.append(topic)
        return 0

    def change() -> None:
        asked.append("a turn of the loop")
        registry.apply_change("t99", TopicConfig("t99"))

    found = await cold.find_going(count_from)
    assert [*found] == [f"t{number}" for number in range(10)]
    assert asked.index("a turn of the loop") == 3
    loop, turns = asyncio.get_running_loop(), 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(turn)

    loop.call_soon(turn)
    assert len(await cold.classes_of(f"t{number}" for number in range(12))) == 12
    assert turns >= 4


async def test_steps_give_others_their_turn_and_end_with_what_they_return() -> None:
    said: list[object] = []

    def act() -> Generator[None, None, str]:
        for number in range(3):
            said.append(number)
            asyncio.get_running_loop().call_soon(said.append, "other")
            yield
        return "done"

    assert await run_in_turns(act()) == "done"
    assert said == [0, "other", 1, "other", 2, "other"]
