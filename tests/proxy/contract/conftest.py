"""Each test of the contract runs over the backend in this process and over the one behind sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from contract_ground import Ground, local_ground, remote_ground

from millstream.model.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["local", "remote"])
async def ground(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Ground]:
    made = local_ground(tmp_path, clock) if request.param == "local" else remote_ground(tmp_path, clock)
    async with made as opened:
        opened.create("orders")
        yield opened
