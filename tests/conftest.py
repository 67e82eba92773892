"""Fixtures for all suites. This file also lets them import `servers` from this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from servers import Servers, running_servers, running_servers_in_thread


@pytest_asyncio.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    """A nameserver and a broker in this test's event loop."""
    async with running_servers(tmp_path / "data") as running:
        yield running


@pytest.fixture
def servers_in_thread(tmp_path: Path) -> Iterator[Servers]:
    """A nameserver and a broker in a thread, for tests that block."""
    with running_servers_in_thread(tmp_path / "data") as running:
        yield running
