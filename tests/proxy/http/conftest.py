"""The HTTP port over a broker of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from http_ground import HttpGround, http_ground, memory_ground


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[HttpGround]:
    async with http_ground(tmp_path) as opened:
        yield opened


@pytest.fixture
async def memory() -> AsyncIterator[HttpGround]:
    async with memory_ground() as opened:
        yield opened
