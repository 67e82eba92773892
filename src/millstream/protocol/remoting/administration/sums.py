"""The body that answers code 315: how much a counter grew lately.

Source: RocketMQ 5.3's BrokerStatsData (facts only).
"""

from __future__ import annotations

from millstream.protocol.remoting.bodies import CamelBody

__all__ = ["GrowthSum", "GrowthSums"]


class GrowthSum(CamelBody):
    """What was added in one span, per second, and (`avgpt`) by one message on average."""

    sum: int
    tps: float
    avgpt: float


class GrowthSums(CamelBody):
    """The sums of the last minute, hour and day."""

    stats_minute: GrowthSum
    stats_hour: GrowthSum
    stats_day: GrowthSum
