"""What tools ask about replicas, cold reads and RocksDB."""

from __future__ import annotations

import pytest
from tool import Tool

from servers import Servers


async def test_a_broker_tells_that_it_is_a_master_without_replicas(tool: Tool, servers: Servers) -> None:
    told = await tool.told(907)
    assert (told["master"], told["inSyncSlaveNums"], told["haConnectionInfo"]) == (True, 0, [])
    assert told["masterCommitLogMaxOffset"] == servers.broker.maintenance.store.written_log_offset


@pytest.mark.parametrize("code", [908, 200056, 2002])
async def test_what_has_nothing_to_do_succeeds(tool: Tool, code: int) -> None:
    assert (await tool.ask(code)).code == 0


async def test_tables_of_cold_reads_are_empty_and_a_threshold_is_refused(tool: Tool) -> None:
    told = await tool.told(2003)
    assert (told["runtimeTable"], told["configTable"]) == ({}, {})
    refused = await tool.ask(2001, b"g=1")
    assert (refused.code, "does not count them" in str(refused.remark)) == (3, True)


async def test_the_log_is_read_in_mode_0_alone(tool: Tool) -> None:
    kept = await tool.ask(2004, READ_AHEAD_MODE=0)
    assert (kept.code, kept.remark) == (0, "The log is read in mode 0.")
    refused = await tool.ask(2004, READ_AHEAD_MODE=1)
    assert (refused.code, "MS-2321" in str(refused.remark)) == (29, True)


async def test_a_check_of_rocksdb_ends_with_an_error_and_its_reason(tool: Tool) -> None:
    told = await tool.told(354, topic="t", checkStoreTime=0)
    assert (told["checkStatus"], "RocksDB" in told["checkResult"]) == (3, True)
