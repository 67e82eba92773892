"""What tools ask about replicas, cold reads and RocksDB: a broker here has none of them, and says so."""

from __future__ import annotations

from typing import Final

from millstream.broker.broker import Broker
from millstream.model.errors import NameRefused
from millstream.protocol.remoting.bodies import CamelBody, encode_body
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_connection import Connection

__all__ = ["StorageToolHandlers"]

_CHECK_ERROR: Final = 3
"""RocketMQ's status of a check that cannot be made."""


class _ReplicaStatus(CamelBody):
    master: bool
    master_commit_log_max_offset: int
    in_sync_slave_nums: int
    ha_connection_info: list[str]
    ha_client_runtime_info: dict[str, int]


class _ColdReads(CamelBody):
    runtime_table: dict[str, str]
    config_table: dict[str, str]
    cg_cold_read_threshold: int
    global_cold_read_threshold: int
    global_acc: int


class _IndexCheck(CamelBody):
    check_result: str
    check_status: int


class StorageToolHandlers:
    """Codes 354, 907, 908, 2001 to 2004 and 200056."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def replicas(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """A master without replicas, and where its log ends."""
        status = _ReplicaStatus(True, self._broker.maintenance.store.written_log_offset, 0, [], {})
        return command.response(body=encode_body(status))

    def do_nothing(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """There is nothing to reset, export or remove."""
        return command.response()

    def cold_reads(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(body=encode_body(_ColdReads({}, {}, 0, 0, 0)))

    def limit_cold_reads(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        reason = "Cold reads of a group have no threshold: this broker does not count them."
        raise NameRefused("UNSUPPORTED_FEATURE", reason, remedy="")

    def set_read_ahead(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        mode = command.ext.get("READ_AHEAD_MODE", "")
        if mode != "0":
            reason = f"The read-ahead mode cannot be {mode[:80]!r}: the log is always read in mode 0."
            raise NameRefused("SETTING_FIXED", reason, remedy="")
        # The tool prints the remark of a success.
        return command.response(remark="The log is read in mode 0.")

    def check_index(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        check = _IndexCheck("This broker keeps no consume queues in RocksDB.", _CHECK_ERROR)
        return command.response(body=encode_body(check))
