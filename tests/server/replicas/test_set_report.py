"""What a set of replicas shows: the master's report, the command line's look, and the metrics of both roles."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from local_set import NAME, LocalSet

from millstream.cli.servers.replica_sets import SetsLook, look_at_sets
from millstream.client.blocking import BlockingClient
from millstream.client.cluster_operations import ClusterOperations
from millstream.server.metrics.replicas import add_replica
from millstream.telemetry.metrics import MetricsPage
from patience import eventually
from scrape import Scraped, parse, value


@pytest.fixture
async def found(tmp_path: Path) -> AsyncIterator[LocalSet]:
    made = LocalSet(tmp_path)
    yield made
    await made.close()


def look(client: BlockingClient) -> SetsLook:
    cluster = ClusterOperations(client.conversations)
    looks = [client.run(cluster.inspect(place)) for place in client.run(cluster.list_brokers())]
    return look_at_sets(client, looks, None)


async def test_a_look_shows_master_members_lag_and_controllers(found: LocalSet) -> None:
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1")
    seen = await found.run(look)
    assert [(one.address, one.leader) for one in seen.controllers] == [(found.addresses["controller"],) * 2]
    one = seen.of(NAME)
    assert one is not None
    assert (one.master_id, one.members, one.epoch) == (1, [1, 2], found["a"].view.epoch)
    assert [(row.broker_id, row.address, row.is_alive, row.behind_bytes) for row in one.replicas] == [
        (1, found.address("a"), True, 0),
        (2, found.address("b"), True, 0),
    ]
    await found.stop("b")
    await found.settle(1)
    left = (await found.run(look)).of(NAME)
    assert left is not None
    assert [(row.is_alive, row.in_set, row.behind_bytes) for row in left.replicas] == [
        (True, True, 0),
        (False, False, None),
    ]


def page_of(found: LocalSet, name: str) -> Scraped:
    page = MetricsPage(cluster="c", node_id=name)
    add_replica(page, found[name])
    return parse(page.text())


async def test_the_pages_of_master_and_replica_show_set_and_lag(found: LocalSet) -> None:
    await found.start("a", "b")
    await found.make_topic()
    await found.send(b"1")
    end = found["a"].log.end
    await eventually(lambda: found["b"].store.confirmed_log_offset == end)
    master, replica = page_of(found, "a"), page_of(found, "b")
    assert value(master, "millstream_replica_role") == 2
    assert value(master, "millstream_replica_set_size") == 2
    assert value(master, "millstream_replica_takes_writes") == 1
    assert value(master, "millstream_replica_lag_bytes", replica_id="2", in_set="true") == 0
    assert value(master, "millstream_replica_confirmed_offset") == end
    assert (value(master, "millstream_replica_lease_left_seconds") or 0) > 0
    assert value(replica, "millstream_replica_role") == 1
    assert value(replica, "millstream_replica_epoch") == value(master, "millstream_replica_epoch")
    assert value(replica, "millstream_replica_apply_lag_bytes") == 0
    assert value(replica, "millstream_replica_behind_bytes") == 0
