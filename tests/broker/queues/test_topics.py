"""The registry of topics."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from state_bench import FileLog, load_table

from millstream.broker.queues import topics as topics_module
from millstream.broker.queues.topics import TopicRegistry
from millstream.model.errors import NameRefused, StoreError
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.store.snapshot import Snapshot


def open_registry(directory: Path) -> TopicRegistry:
    registry = TopicRegistry(Snapshot(directory / "topics.json"))
    load_table(registry.table, directory)
    return registry


def test_topics_survive_a_restart(tmp_path: Path) -> None:
    orders = TopicConfig("orders", MessageType.FIFO, 2, 3, Permission.READ, {"message.type": "FIFO"})
    assert open_registry(tmp_path).create(orders)
    again = open_registry(tmp_path)
    assert again.get("orders") == orders
    assert again.all() == [orders]


def test_creating_an_equal_topic_again_changes_nothing_and_another_one_is_refused(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    topic = TopicConfig("orders")
    assert registry.create(topic) is True
    assert registry.create(TopicConfig("orders")) is False
    with pytest.raises(NameRefused, match="exists with other settings: type NORMAL, 4 readable") as refused:
        registry.create(replace(topic, write_queues=8))
    assert refused.value.name == "TOPIC_EXISTS"
    assert registry.get("orders") == topic


def test_topics_that_are_offered_are_not_saved_and_leave_a_users_topic_alone(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    registry.create(TopicConfig("mine", MessageType.FIFO))
    registry.offer([TopicConfig("mine"), TopicConfig("cluster")])
    registry.create(TopicConfig("other"))
    assert [topic.name for topic in registry.all()] == ["cluster", "mine", "other"]
    assert registry.get("mine").message_type is MessageType.FIFO
    registry.delete("mine")
    with pytest.raises(NameRefused):
        registry.delete("cluster")
    assert [topic.name for topic in open_registry(tmp_path).all()] == ["other"]


@pytest.mark.parametrize(
    "topic",
    [
        TopicConfig(""),
        TopicConfig("a b"),
        TopicConfig("x" * 128),
        TopicConfig("TBW102"),
        TopicConfig("rmq_sys_anything"),
        TopicConfig("orders", write_queues=0),
        TopicConfig("orders", read_queues=1025),
    ],
)
def test_illegal_topics_are_refused(tmp_path: Path, topic: TopicConfig) -> None:
    registry = open_registry(tmp_path)
    with pytest.raises(NameRefused) as refused:
        registry.create(topic)
    assert refused.value.name == "ILLEGAL_TOPIC"
    assert registry.all() == []


def test_a_missing_topic_is_none_or_refused_by_name(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    assert registry.find("nowhere") is None
    for refuse in (registry.get, registry.delete):
        with pytest.raises(NameRefused, match="'nowhere'") as refused:
            refuse("nowhere")
        assert refused.value.name == "TOPIC_NOT_FOUND"


def test_listeners_hear_of_every_change_in_order(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    heard: list[tuple[str, object]] = []
    registry.before_delete.append(lambda name: heard.append((name, registry.find(name) is not None)))
    registry.on_change.append(lambda name, topic: heard.append((name, topic)))
    orders = TopicConfig("orders")
    registry.create(orders)
    registry.create(orders)
    registry.delete("orders")
    assert heard == [("orders", orders), ("orders", True), ("orders", None)]
    assert open_registry(tmp_path).all() == []


def test_a_topic_that_cannot_be_saved_is_not_there(tmp_path: Path) -> None:
    registry = TopicRegistry(Snapshot(tmp_path / "topics.json"))
    log = FileLog(tmp_path)
    log.failure = StoreError("STORE_FAILED", "The disk is broken.")
    registry.table.bind(log)
    with pytest.raises(StoreError) as failed:
        registry.create(TopicConfig("orders"))
    assert failed.value.name == "STORE_FAILED"
    assert registry.find("orders") is None


def test_the_number_of_topics_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "MAX_TOPICS", 2)
    registry = open_registry(tmp_path)
    registry.create(TopicConfig("a"))
    registry.create(TopicConfig("b"))
    with pytest.raises(NameRefused) as refused:
        registry.create(TopicConfig("c"))
    assert refused.value.name == "TOO_MANY_REQUESTS"


def test_the_saved_form_can_be_read_by_a_person(tmp_path: Path) -> None:
    registry = open_registry(tmp_path)
    registry.create(TopicConfig("orders"))
    registry.table.save()
    saved = Snapshot(tmp_path / "topics.json").load()
    assert saved is not None
    assert saved.count(b"\n") > 5
    assert json.loads(saved)["topics"][0]["message_type"] == "NORMAL"


@pytest.mark.parametrize("document", [b"nonsense", b'{"version":2,"topics":[]}', b"{}"])
def test_another_format_is_refused(tmp_path: Path, document: bytes) -> None:
    Snapshot(tmp_path / "topics.json").save(document)
    with pytest.raises(StoreError) as refused:
        open_registry(tmp_path)
    assert refused.value.name == "STORE_FORMAT"
