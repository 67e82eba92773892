"""All scenarios of the simulated cluster."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace

from benchmarks.large_cluster.controllers import measure_heartbeats, measure_rack, measure_recovery
from benchmarks.large_cluster.layout import WHOLE, Layout
from benchmarks.large_cluster.live_controllers import measure_live_heartbeats
from benchmarks.large_cluster.nameserver import measure_registrations, measure_restart

__all__ = ["measure_large_cluster"]

_MANY_SETS = 3334
"""Sets of three that make 10,000 replicas."""


def measure_large_cluster(layout: Layout = WHOLE) -> dict[str, object]:
    """Registration and routes, a restart of the nameserver, heartbeats, a rack that dies, controllers' start."""
    doubled = replace(layout, sets=2 * layout.sets)
    return asyncio.run(_measure(layout)) | {
        "heartbeats_1000_sets_over_sockets": [measure_live_heartbeats(doubled, controllers=count) for count in (1, 3)]
    }


async def _measure(layout: Layout) -> dict[str, object]:
    nameserver = await measure_registrations(layout)
    routes = nameserver["routes"]
    assert isinstance(routes, dict)
    return {
        "layout": asdict(layout),
        "nameserver": nameserver,
        "restart": await measure_restart(layout, route_cpu_us=routes["cpu_us_a_request"]),
        "heartbeats": await measure_heartbeats(layout),
        "heartbeats_1000_sets_a_second": await measure_heartbeats(replace(layout, sets=2 * layout.sets), beat_s=1.0),
        "rack": await measure_rack(layout),
        "recovery": await measure_recovery(replace(layout, sets=_MANY_SETS if layout is WHOLE else layout.sets)),
    }
