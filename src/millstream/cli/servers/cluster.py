"""`millstream cluster` and `millstream status`: list the servers and their health."""

from __future__ import annotations

import json
import time

from millstream import __version__
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, Value
from millstream.cli.servers.broker import state_of
from millstream.cli.servers.doctor import failure_of
from millstream.cli.servers.finding import Severity
from millstream.cli.servers.replica_sets import (
    IN_SET,
    ControllerOption,
    SetsLook,
    controller_rows,
    look_at_sets,
    member_count,
    replica_rows,
)
from millstream.cli.servers.set_finding import of_controllers, of_set
from millstream.client.blocking import BlockingClient
from millstream.client.cluster_operations import BrokerStatus, ClusterOperations, NameserverStatus, RegisteredBroker
from millstream.client.replica_operations import SetStatus
from millstream.model.errors import Unreachable
from millstream.telemetry.processes import owners_of

__all__ = ["status", "topology"]


def topology(*, controllers: ControllerOption = None, common: CommonOptions = CommonOptions()) -> int:
    """Show which nameservers there are, which brokers each of them knows, and the replicas and controllers of these.

    Below the table stands what is at risk with the replicas; millstream doctor says what to do about it.
    """
    nameservers, _, sets = _look(common, controllers)
    rows: list[tuple[Value, ...]] = []
    for one in nameservers:
        answers = "answers" if one.failure is None else "unreachable"
        rows += [
            (one.address, answers, *_place_row(place), *_place_in_set(sets.of(place.name)))
            for place in one.brokers
            # The set tells more of its replicas, further down.
            if place.broker_id == 0 or sets.of(place.name) is None
        ] or [(one.address, answers, *(None,) * 7)]
    columns = ("nameserver", "state", "cluster", "broker", "role", "address", "epoch", "set", "behind_bytes")
    replicas = [{**row, "role": _role(row["replica"])} for found in sets.sets for row in replica_rows(found)]
    rows += [tuple(map(row.get, columns)) for row in (*replicas, *controller_rows(sets))]
    printer = Printer(common.output)
    printer.listing(columns, rows, empty="No nameserver is named.")
    if printer.format == "table":
        _print_risks(sets)
    return ExitCode.DONE if any(one.failure is None for one in nameservers) else ExitCode.UNREACHABLE


def status(*, controllers: ControllerOption = None, common: CommonOptions = CommonOptions()) -> int:
    """Show all servers in one screen: which answer, versions, what waits for groups, disks; also the profile's proxy.

    The exit code is 0 while all that are named or registered answer and every replica is in its set, else 5.
    """
    nameservers, brokers, sets = _look(common, controllers)
    others = [*_replicas(sets), *controller_rows(sets)]
    proxies = _proxies(common.chosen_profile.grpc, common.timeout_s) if common.chosen_profile.grpc else []
    if all(one.failure is not None for one in nameservers):
        raise Unreachable(nameservers[0].failure.message if nameservers[0].failure else "No nameserver answers.")
    if Printer(common.output).format == "json":
        topology = {
            "nameservers": [_nameserver(one) for one in nameservers],
            "brokers": [_broker(one) for one in brokers],
        }
        topology |= {"replicas": _replicas(sets), "controllers": controller_rows(sets)}
        print(json.dumps({"version": __version__, **topology, "proxies": proxies}))
    else:
        rows = [_line(row) for row in (*map(_nameserver, nameservers), *map(_broker, brokers), *others, *proxies)]
        columns = ("role", "name", "address", "state", "version", "waiting_messages", "disk_free", "answer_ms")
        Printer(common.output).listing(columns, rows, empty="There is nothing.")
    failures = [*(one.failure for one in nameservers), *(one.failure for one in brokers)]
    is_whole = not any(failures) and all(row["state"] in ("serving", IN_SET) for row in (*proxies, *others))
    return ExitCode.DONE if is_whole else ExitCode.PARTLY_DONE


def _look(
    common: CommonOptions, controllers: str | None
) -> tuple[list[NameserverStatus], list[BrokerStatus], SetsLook]:
    """The nameservers, the brokers that any of them knows, and the sets of these."""
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        cluster = ClusterOperations(client.conversations)
        nameservers = client.run(cluster.nameservers())
        places = sorted({place for one in nameservers for place in one.brokers})
        looks = client.run(cluster.inspect_all(places))
        return nameservers, looks, look_at_sets(client, looks, controllers)


def _place_row(place: RegisteredBroker) -> tuple[Value, ...]:
    return place.cluster, place.name, _role(place.broker_id), place.address


def _place_in_set(found: SetStatus | None) -> tuple[Value, Value, Value]:
    """Epoch, members and what the master is behind, which is nothing."""
    return (None, None, None) if found is None else (found.epoch, member_count(found), None)


def _print_risks(sets: SetsLook) -> None:
    findings = [*of_controllers(sets.controllers), *(one for found in sets.sets for one in of_set(found))]
    for finding in findings:
        if finding.state is not Severity.OK:
            print(f"{finding.state.value}: {finding.subject}: {finding.words}")


def _replicas(sets: SetsLook) -> list[dict[str, Value]]:
    return [
        {**row, "role": f"broker ({_role(row['replica'])})", "name": row["broker"]}
        for found in sets.sets
        for row in replica_rows(found)
    ]


def _role(broker_id: Value) -> str:
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


def _proxies(address: str, timeout_s: float) -> list[dict[str, Value]]:
    """One, or a row of each process of this machine that shares the port; the system chooses which of them answers."""
    begin_s = time.perf_counter()
    failure = failure_of(address, timeout_s)
    answer_ms = round((time.perf_counter() - begin_s) * 1000, 1)
    state = "serving" if failure is None else "unreachable"
    host, _, port = address.rpartition(":")
    owners = owners_of(host.strip("[]"), int(port)) if failure is None else []
    row: dict[str, Value] = {"role": "proxy", "address": address, "state": state, "answer_ms": answer_ms}
    names = [f"process {owner}" for owner in owners] if len(owners) > 1 else [None]
    return [{**row, "name": name} for name in names]


def _line(values: dict[str, Value]) -> tuple[Value, ...]:
    free = values.get("disk_free_bytes")
    shown = f"{free / 2**30:,.1f} GiB" if isinstance(free, int) else None
    names = ("role", "name", "address", "state", "version", "waiting_messages")
    return (*(values.get(name) for name in names), shown, values.get("answer_ms"))
