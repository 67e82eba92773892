"""How a broker is doing: what tools print of it, and sums of the last minute, hour and day."""

from __future__ import annotations

import asyncio
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.runtime import describe_runtime
from millstream.broker.traffic import Flow
from millstream.broker.traffic_history import DAY_MS, HOUR_MS, MINUTE_MS, Growth
from millstream.model.errors import NameRefused
from millstream.protocol.remoting.bodies import KeyValueTable, encode_body
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import text
from millstream.protocol.remoting.sums import GrowthSum, GrowthSums
from millstream.transport.remoting_connection import Connection

__all__ = ["RuntimeHandlers"]

_NUMBERS, _SIZE = "_NUMS", "_SIZE"
_FLOWS: Final = {
    "TOPIC_PUT": Flow.PUT,
    "GROUP_GET": Flow.GET,
    "DLQ_PUT": Flow.DEAD,
    "BROKER_PUT": Flow.ALL_PUT,
    "BROKER_GET": Flow.ALL_GET,
}
"""The first part of a statistic's name. Of the whole broker are the last two, whatever the key says."""


class RuntimeHandlers:
    """Codes 28 and 315."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def runtime(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        # The disk may let a question wait.
        disk = await asyncio.to_thread(lambda: self._broker.maintenance.store.disk)
        return command.response(body=encode_body(KeyValueTable(describe_runtime(self._broker, disk))))

    def sums(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Zeros where nothing was counted; refused where there is no such statistic, or it is not counted alone."""
        name, key = text(command.ext, "statsName"), text(command.ext, "statsKey")
        flow = _FLOWS.get(name.removesuffix(_NUMBERS).removesuffix(_SIZE))
        if flow is None or not name.endswith((_NUMBERS, _SIZE)):
            raise NameRefused("STATISTIC_UNKNOWN", f"There is no statistic {name[:80]!r}.")
        topic, _, group = key.partition("@")
        if flow is Flow.ALL_PUT or flow is Flow.ALL_GET:
            topic = group = ""
        if not self._broker.maintenance.traffic.is_apart(flow, topic, group):
            raise NameRefused("STATISTIC_UNKNOWN", f"{key[:200]!r} is counted together with others.", remedy="")
        spans = (
            self._broker.maintenance.traffic.growth(flow, topic, group, span_ms)
            for span_ms in (MINUTE_MS, HOUR_MS, DAY_MS)
        )
        return command.response(body=encode_body(GrowthSums(*(_sum(growth, name) for growth in spans))))


def _sum(growth: Growth, name: str) -> GrowthSum:
    if name.endswith(_NUMBERS):
        return GrowthSum(growth.messages, growth.messages_per_s, 1.0 if growth.messages else 0.0)
    average = growth.size_bytes / growth.messages if growth.messages else 0.0
    return GrowthSum(growth.size_bytes, growth.bytes_per_s, average)
