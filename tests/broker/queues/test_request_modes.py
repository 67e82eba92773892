"""How groups get their messages, over restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_bench import running
from state_bench import load_table

from millstream.broker.queues import consumer_groups
from millstream.broker.queues.consumer_groups import PULLS, RequestKind, RequestMode, RequestModes
from millstream.model.errors import NameRefused
from millstream.model.group import GroupConfig
from millstream.model.topic import TopicConfig
from millstream.store.snapshot import Snapshot

POPS = RequestMode(RequestKind.POP, 2)


async def test_a_mode_is_there_after_a_restart_and_goes_with_its_topic_or_group(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        for name in ("t", "u"):
            broker.topics.create(TopicConfig(name))
            broker.groups.set_request_mode(name, "g", POPS)
        broker.groups.create(GroupConfig("g"))
        assert broker.groups.request_mode("t", "h") == PULLS
    async with running(tmp_path) as broker:
        assert broker.groups.request_mode("t", "g") == POPS
        broker.topics.delete("t")
        assert (broker.groups.request_mode("t", "g"), broker.groups.request_mode("u", "g")) == (PULLS, POPS)
        broker.groups.delete("g")
        assert broker.groups.request_mode("u", "g") == PULLS
    async with running(tmp_path) as broker:
        assert broker.groups.request_mode("u", "g") == PULLS


def test_a_mode_over_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_groups, "MAX_REQUEST_MODES", 1)
    modes = RequestModes(Snapshot(tmp_path / "modes.json"))
    load_table(modes.table, tmp_path)
    modes.put("t", "g", POPS)
    modes.put("t", "g", PULLS)
    with pytest.raises(NameRefused, match="limit"):
        modes.put("t", "h", POPS)
