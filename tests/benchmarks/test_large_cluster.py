"""A small size of each scenario of the simulated cluster: what is counted, not how long it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.large_cluster.controllers import measure_heartbeats, measure_rack, measure_recovery, running_controllers
from benchmarks.large_cluster.layout import SMALL
from benchmarks.large_cluster.live_controllers import measure_live_heartbeats
from benchmarks.large_cluster.nameserver import measure_registrations, measure_restart

MEMBERS = SMALL.sets * SMALL.replicas


async def test_all_brokers_of_the_simulated_cluster_register_all_topics() -> None:
    found = await measure_registrations(SMALL)
    assert (found["brokers"], found["topics"]) == (SMALL.sets, SMALL.topics)
    for kind in ("first", "nothing_changed"):
        assert found[kind]["requests"] == MEMBERS  # type: ignore[index]
        assert found[kind]["refused"] == 0  # type: ignore[index]
    assert found["rack"]["sets_with_a_new_master"] == SMALL.rack  # type: ignore[index]


async def test_a_nameserver_that_starts_empty_knows_every_broker_and_topic_again() -> None:
    found = await measure_restart(SMALL, route_cpu_us=1.0)
    assert (found["brokers_known"], found["routes_found"], found["refused"]) == (MEMBERS, 1.0, 0)


async def test_heartbeats_of_the_simulated_cluster_change_no_master() -> None:
    found = await measure_heartbeats(SMALL, seconds=0.5)
    assert (found["heartbeats_a_second"], found["elections"]) == (2 * MEMBERS, 0)


async def test_each_master_of_a_dead_rack_gets_one_successor_and_the_living_are_told() -> None:
    found = await measure_rack(SMALL)
    assert found["elected"] == SMALL.rack
    assert found["notifications"] == SMALL.rack * (SMALL.replicas - 1)


async def test_controllers_that_start_again_know_all_sets() -> None:
    assert (await measure_recovery(SMALL))["sets"] == SMALL.sets


async def test_the_simulated_controllers_agree(tmp_path: Path) -> None:
    async with running_controllers(SMALL, tmp_path) as group:
        await group.logs[group.leader].barrier()
        assert len(group.sets[group.leader]) == SMALL.sets


@pytest.mark.process
@pytest.mark.parametrize("controllers", [1, 3])
def test_controllers_answer_every_heartbeat_of_brokers_with_a_connection_each(controllers: int) -> None:
    found = measure_live_heartbeats(SMALL, controllers=controllers, seconds=1, beat_s=0.5)
    assert (found["connections"], found["controllers"], found["refused"]) == (MEMBERS, controllers, 0)
    assert found["heartbeats"] == 2 * MEMBERS
