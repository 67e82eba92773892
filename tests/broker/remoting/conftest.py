"""Fixtures of the tests of request codes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from tool import Tool

from millstream.model.message import Address
from millstream.transport.remoting_client import RemotingConnection
from servers import Servers


@pytest_asyncio.fixture
async def tool(servers: Servers) -> AsyncIterator[Tool]:
    """Connected to the broker of `servers`."""
    host, _, port = servers.broker_address.rpartition(":")
    connection = await RemotingConnection.open(Address(host, int(port)))
    yield Tool(connection)
    await connection.close()
