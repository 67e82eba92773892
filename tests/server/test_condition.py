"""Whether a server lives and is ready, and why it is not."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from millstream.broker.broker import Broker
from millstream.model.errors import StoreError
from millstream.model.message import OutgoingMessage
from millstream.model.topic import TopicConfig
from millstream.server.condition import Condition
from millstream.store.files import FileLayer
from millstream.store.message_store import MessageStore
from millstream.transport.http_pages import Page


def reasons(page: Page) -> list[str]:
    found: list[str] = json.loads(page.text)["reasons"]
    assert (page.status == 200) == (not found)
    return found


async def test_a_server_that_recovers_its_log_lives_and_is_not_ready() -> None:
    condition = Condition()
    assert reasons(await condition.health()) == []
    assert reasons(await condition.readiness()) == ["The log is being opened and recovered."]
    assert json.loads((await condition.readiness()).text)["log"] is None


@pytest.fixture
async def broker(tmp_path: Path) -> Broker:
    started = Broker(tmp_path)
    await started.start()
    started.topics.create(TopicConfig("t"))
    return started


async def test_a_server_that_stops_is_not_ready_any_more(broker: Broker) -> None:
    condition = Condition("stopping", broker)
    assert reasons(await condition.readiness()) == ["The server is stopping."]
    assert reasons(await condition.health()) == []
    await broker.close()


async def test_a_store_that_failed_for_good_asks_for_a_restart(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    condition = Condition("serving", broker)
    assert reasons(await condition.readiness()) == []

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(FileLayer, "pwrite", broken)
    with pytest.raises(StoreError):
        await broker.delivery.send([OutgoingMessage("t", b"x", {})])
    (reason,) = reasons(await condition.readiness())
    assert "Input/output error" in reason
    assert reasons(await condition.health()) == [reason]
    monkeypatch.undo()
    await broker.close()


async def test_a_full_disk_makes_the_server_unready_and_needs_no_restart(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    condition = Condition("serving", broker)
    monkeypatch.setattr(MessageStore, "is_disk_full", True)
    (reason,) = reasons(await condition.readiness())
    assert "disk" in reason
    assert reasons(await condition.health()) == []
    monkeypatch.undo()
    await broker.close()
