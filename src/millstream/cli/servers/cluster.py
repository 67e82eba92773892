"""`millstream cluster` and `millstream status`: which servers there are and how they are."""

from __future__ import annotations

import json
import time

from millstream import __version__
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, Value
from millstream.cli.servers.broker import state_of
from millstream.cli.servers.doctor import failure_of
from millstream.client.blocking import BlockingClient
from millstream.client.cluster_operations import BrokerStatus, ClusterOperations, NameserverStatus
from millstream.model.errors import Unreachable

__all__ = ["status", "topology"]


def topology(*, common: CommonOptions = CommonOptions()) -> int:
    """Show which nameservers there are and which brokers each of them knows."""
    nameservers, _ = _look(common, reports=False)
    rows: list[tuple[Value, ...]] = []
    for one in nameservers:
        answers = "answers" if one.failure is None else "unreachable"
        rows += [
            (one.address, answers, place.cluster, place.name, _role(place.broker_id), place.address)
            for place in one.brokers
        ] or [(one.address, answers, None, None, None, None)]
    columns = ("nameserver", "state", "cluster", "broker", "role", "address")
    Printer(common.output).listing(columns, rows, empty="No nameserver is named.")
    return ExitCode.DONE if any(one.failure is None for one in nameservers) else ExitCode.UNREACHABLE


def status(*, common: CommonOptions = CommonOptions()) -> int:
    """Show all servers in one screen: which answer, versions, what waits for groups, disks; also the profile's proxy.

    The exit code is 0 while all that are named or registered answer, 5 if some do not.
    """
    nameservers, brokers = _look(common, reports=True)
    proxies = [_proxy(common.chosen_profile.grpc, common.timeout_s)] if common.chosen_profile.grpc else []
    if all(one.failure is not None for one in nameservers):
        raise Unreachable(nameservers[0].failure.message if nameservers[0].failure else "No nameserver answers.")
    if Printer(common.output).format == "json":
        told = {"nameservers": [_nameserver(one) for one in nameservers], "brokers": [_broker(one) for one in brokers]}
        print(json.dumps({"version": __version__, **told, "proxies": proxies}))
    else:
        rows = [_line(row) for row in (*map(_nameserver, nameservers), *map(_broker, brokers), *proxies)]
        columns = ("role", "name", "address", "state", "version", "waiting_messages", "disk_free", "answer_ms")
        Printer(common.output).listing(columns, rows, empty="There is nothing.")
    failures = [*(one.failure for one in nameservers), *(one.failure for one in brokers)]
    is_whole = not any(failures) and all(proxy["state"] == "serving" for proxy in proxies)
    return ExitCode.DONE if is_whole else ExitCode.PARTLY_DONE


def _look(common: CommonOptions, *, reports: bool) -> tuple[list[NameserverStatus], list[BrokerStatus]]:
    """The nameservers, and the brokers that any of them knows."""
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        cluster = ClusterOperations(client.conversations)
        nameservers = client.run(cluster.nameservers())
        places = sorted({place for one in nameservers for place in one.brokers}) if reports else []
        return nameservers, [client.run(cluster.inspect(place)) for place in places]


def _role(broker_id: int) -> str:
    return "master" if broker_id == 0 else f"replica {broker_id}"


def _nameserver(look: NameserverStatus) -> dict[str, Value]:
    return {
        "role": "nameserver",
        "name": None,
        "address": look.address,
        "state": "serving" if look.failure is None else "unreachable",
        "answer_ms": round(look.answer_ms, 1),
    }


def _broker(look: BrokerStatus) -> dict[str, Value]:
    report = look.report
    return {
        "role": f"broker ({_role(look.broker.broker_id)})",
        "name": look.broker.name,
        "cluster": look.broker.cluster,
        "address": look.broker.address,
        "state": state_of(look),
        "version": report.version if report else None,
        "topics": report.topics if report else None,
        "groups": report.groups if report else None,
        "waiting_messages": report.waiting_messages if report else None,
        "delayed_messages": report.delayed_messages if report else None,
        "log_bytes": report.log_bytes if report else None,
        "disk_free_bytes": report.disk_free_bytes if report else None,
        "answer_ms": round(look.answer_ms, 1),
    }


def _proxy(address: str, timeout_s: float) -> dict[str, Value]:
    begin_s = time.perf_counter()
    failure = failure_of(address, timeout_s)
    answer_ms = round((time.perf_counter() - begin_s) * 1000, 1)
    state = "serving" if failure is None else "unreachable"
    return {"role": "proxy", "name": None, "address": address, "state": state, "answer_ms": answer_ms}


def _line(values: dict[str, Value]) -> tuple[Value, ...]:
    free = values.get("disk_free_bytes")
    shown = f"{free / 2**30:,.1f} GiB" if isinstance(free, int) else None
    names = ("role", "name", "address", "state", "version", "waiting_messages")
    return (*(values.get(name) for name in names), shown, values["answer_ms"])
