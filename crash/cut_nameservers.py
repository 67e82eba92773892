"""N4: brokers are cut off from their nameservers and back again, while clients reach both."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Final

from crash.cluster_load import TOPIC, ClusterLoad
from crash.network import Network
from crash.network_cluster import NetworkCluster
from crash.programme import ProgrammeRun, scratch_directory
from millstream.client.blocking import BlockingClient
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicConfig

__all__ = ["cut_brokers_from_nameservers"]

BACK_S: Final = 15.0
"""Seconds after the healing within which each nameserver knows what changed meanwhile."""

_NAMESERVERS = ("ns-0", "ns-1")
_BROKERS = ("a", "b")
_QUEUES = 2
_AT_LEAST = 20

_CUTS = ("one_broker", "one_nameserver", "all", "unheard", "unanswered")
"""One broker from all nameservers, all brokers from one, all from all; and all in one direction only."""


def cut_brokers_from_nameservers(run: ProgrammeRun) -> None:
    """N4. 2 cuts of 2 s (ci), each kind for 20 s and all for 150 s, beyond the lease (full), 100 cuts (soak)."""
    rounds, cut_s = run.by_size(2, 6, 100), run.by_size(2, 20, 20)
    kinds = run.random.sample(_CUTS, len(_CUTS))
    with scratch_directory(on_disk=True) as root, Network() as network, ExitStack() as running:
        cluster = NetworkCluster(network, root, running)
        addresses = [cluster.nameserver(name) for name in _NAMESERVERS]
        for name in _BROKERS:
            cluster.broker(name)
        _create(cluster.nameservers, TOPIC)
        with ClusterLoad(cluster.nameservers) as load:
            for number in range(rounds):
                beyond_lease = number % (len(_CUTS) + 1) == len(_CUTS)
                kind = "all" if beyond_lease else kinds[number % len(_CUTS)]
                _round(run, cluster, load, addresses, kind, 150 if beyond_lease else cut_s)
        load.judge(run)
        if run.failures:
            run.fail("the logs of this run", root)


def _round(
    run: ProgrammeRun, cluster: NetworkCluster, load: ClusterLoad, addresses: list[str], kind: str, cut_s: float
) -> None:
    load.go_on(_AT_LEAST)
    pairs = _pairs(run, kind)
    for broker, nameserver in pairs:
        ends = (nameserver, broker) if kind == "unanswered" else (broker, nameserver)
        cluster.cut(*ends, one_way=kind in ("unheard", "unanswered"))
    until_s = time.monotonic() + cut_s
    # A change that the nameservers cannot hear of is what makes the brokers notice.
    topic = f"changed-{run.counts.get('cuts', 0)}"
    _create(cluster.nameservers, topic)
    while True:
        load.go_on(_AT_LEAST)
        if time.monotonic() > until_s:
            break
    for pair in pairs:
        cluster.heal(*pair)
    run.count("cuts")
    _wait_until_known(run, kind, addresses, topic)
    load.go_on(_AT_LEAST)


def _pairs(run: ProgrammeRun, kind: str) -> list[tuple[str, str]]:
    brokers = [run.random.choice(_BROKERS)] if kind == "one_broker" else list(_BROKERS)
    nameservers = [run.random.choice(_NAMESERVERS)] if kind == "one_nameserver" else list(_NAMESERVERS)
    return [(broker, nameserver) for broker in brokers for nameserver in nameservers]


def _create(nameservers: str, topic: str) -> None:
    with BlockingClient(nameservers) as client:
        client.create_topic(TopicConfig(topic, read_queues=_QUEUES, write_queues=_QUEUES))


def _wait_until_known(run: ProgrammeRun, kind: str, addresses: list[str], topic: str) -> None:
    """Until each nameserver has all brokers' queues of both topics."""
    began_s = time.monotonic()
    for address in addresses:
        for name in (TOPIC, topic):
            while not _is_known(address, name):
                if time.monotonic() - began_s > BACK_S:
                    run.fail(f"{kind}: {address} does not know {name} of all brokers {BACK_S:g} s after the healing")
                    return
                time.sleep(0.05)
    back_ms = round((time.monotonic() - began_s) * 1000)
    run.counts["slowest_back_ms"] = max(run.counts.get("slowest_back_ms", 0), back_ms)


def _is_known(address: str, topic: str) -> bool:
    try:
        with BlockingClient(address) as client:
            return {queue.broker_name for queue in client.queues(topic)} == set(_BROKERS)
    except MillstreamError:
        return False
