"""A master's requests for another set, while the controllers answer and while they do not."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.model.errors import MillstreamError, Unreachable
from millstream.replication.sync_set import AckPolicy, SetRequest, SyncSet
from millstream.server.replicas import set_changes
from millstream.server.replicas.set_changes import SetChanges
from patience import eventually


class Controllers:
    """What `Membership` asks: silent until they are told to answer."""

    def __init__(self) -> None:
        self.failure: MillstreamError | None = Unreachable("planted")
        self.requests = 0

    async def alter(self, wanted: SetRequest) -> tuple[frozenset[int], int]:
        self.requests += 1
        if self.failure is not None:
            raise self.failure
        return frozenset(wanted.members), wanted.set_epoch + 1


async def test_a_set_that_no_controller_gives_is_asked_for_again_and_logged_once_for_each_outage(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(set_changes, "RETRY_S", 0.0)
    controllers = Controllers()
    now_s = asyncio.get_running_loop().time()
    sync_set = SyncSet(1, 1, {1, 2, 3}, 1, policy=AckPolicy(), confirmed=0, epoch_start=0, now_s=now_s - 1000)
    source = SimpleNamespace(sync_set=sync_set, note_own=lambda: None)
    port = SimpleNamespace(source=source, release_leavers=lambda: None)
    changes = SetChanges(cast("Any", controllers), cast("Any", port), lambda: None)

    async def ask_until(count: int) -> None:
        def has_asked() -> bool:
            changes.review()
            return controllers.requests >= count

        await eventually(has_asked)

    def lines() -> int:
        return sum("asked for again" in one.getMessage() for one in caplog.records)

    await ask_until(10)
    assert lines() == 1
    controllers.failure = None
    await eventually(lambda: (changes.review(), len(sync_set.members) == 1)[1])
    controllers.failure = Unreachable("planted")
    sync_set.note_set(frozenset({1, 2}), sync_set.set_epoch + 1)
    await ask_until(controllers.requests + 10)
    assert lines() == 2
    changes.close()
