"""`millstream doctor`: check for common problems, each with its remedy."""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
from importlib.metadata import version
from typing import Any, Final

from millstream import __version__
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer
from millstream.cli.servers.event_loop import describe_loop
from millstream.cli.servers.finding import Finding, Severity, of_broker, of_nameservers, of_versions
from millstream.cli.servers.replica_sets import ControllerOption, look_at_sets
from millstream.cli.servers.set_finding import of_controllers, of_set
from millstream.client.blocking import BlockingClient
from millstream.client.cluster_operations import ClusterOperations, NameserverStatus
from millstream.hot_modules import HotPath, look_at_hot_path
from millstream.model.errors import MillstreamError

__all__ = ["doctor", "failure_of", "of_event_loop", "of_hot_path"]

_PORTS: Final = {"nameserver": 9876, "broker": 10911, "gRPC proxy": 8081}


def doctor(
    *, grpc: str | None = None, controllers: ControllerOption = None, common: CommonOptions = CommonOptions()
) -> int:
    """Check nameservers, announced addresses, replicas, clocks, disks, descriptors, versions, speed-ups, Java.

    The exit code is 1 if one is broken.

    Parameters
    ----------
    grpc
        host:port of a proxy to check as well; default: the profile's.
    """
    findings = _of_servers(common, controllers)
    proxy = grpc or common.chosen_profile.grpc
    if proxy:
        findings.append(_of_proxy(proxy, common.timeout_s))
    findings += [of_hot_path(look_at_hot_path()), of_event_loop(describe_loop()), *_of_streams()]
    if Printer(common.output).format == "json":
        print(json.dumps([_row_of(one) for one in findings]))
    else:
        rows = [tuple(_row_of(one).values()) for one in findings]
        Printer(common.output).listing(("check", "state", "finding", "remedy"), rows, empty="Nothing was checked.")
    return ExitCode.REFUSED if any(one.state is Severity.PROBLEM for one in findings) else ExitCode.DONE


def _row_of(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.subject,
        "state": finding.state.value,
        "finding": finding.words,
        "remedy": finding.remedy or None,
    }


def _of_servers(common: CommonOptions, controllers: str | None) -> list[Finding]:
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        cluster = ClusterOperations(client.conversations)
        nameservers = client.run(cluster.nameservers())
        findings = of_nameservers(nameservers)
        answering = [look for look in nameservers if look.failure is None]
        if not answering:
            return findings + [_of_port(role, port) for role, port in _PORTS.items()]
        places = sorted({place for look in answering for place in look.brokers})
        looks = client.run(cluster.inspect_all(places, probes_disk=True))
        sets = look_at_sets(client, looks, controllers)
    is_far = not any(_is_near(look) for look in answering)
    for look in looks:
        findings += of_broker(look, asked_from_afar=is_far)
    findings += [*of_controllers(sets.controllers), *(one for found in sets.sets for one in of_set(found))]
    return findings + (of_versions(__version__, looks) if looks else [])


def _is_near(look: NameserverStatus) -> bool:
    return look.address.rpartition(":")[0].strip("[]") in ("localhost", "127.0.0.1", "::1")


def _of_port(role: str, port: int) -> Finding:
    """Of a port that is to be free, or ours: said where no nameserver answers."""
    from millstream.telemetry.processes import owner_of

    owner = owner_of("127.0.0.1", port)
    words = "is free" if owner is None else f"is taken by process {owner}"
    return Finding(f"port {port} ({role}) of this machine", Severity.OK, words)


def failure_of(address: str, timeout_s: float) -> str | None:
    """Why nothing takes connections at `host:port`; None where something does."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout_s):
            return None
    except (OSError, ValueError) as error:
        return str(error)


def _of_proxy(address: str, timeout_s: float) -> Finding:
    from millstream.telemetry.processes import owners_of

    failure = failure_of(address, timeout_s)
    if failure is None:
        host, _, port = address.rpartition(":")
        owners = owners_of(host.strip("[]"), int(port))
        sharers = f", as processes {', '.join(map(str, owners))}" if len(owners) > 1 else ""
        return Finding(f"proxy {address}", Severity.OK, f"takes connections{sharers}")
    remedy = "Start it, or name its address with --grpc or in the profile."
    return Finding(f"proxy {address}", Severity.PROBLEM, f"cannot be reached: {failure}", remedy)


def of_hot_path(path: HotPath) -> Finding:
    """Of this installation: servers of others may run in the other form."""
    if path.is_compiled:
        return Finding("compiled hot path", Severity.OK, f"all {path.modules} hot modules are compiled")
    some = f"{path.compiled} of {path.modules} hot modules are compiled" if path.compiled else "runs as plain Python"
    remedy = (
        "It is right as it is, and slower. Install a wheel that was built with a C compiler, without MILLSTREAM_PLAIN."
    )
    return Finding("compiled hot path", Severity.WARNING, f"{some}: {path.why}", remedy)


def of_event_loop(loop: str) -> Finding:
    """Of servers that are started from this installation; the standard loop is right, too."""
    faster = 'Servers of thousands of connections take less processor time with: pip install "millstream[fast]".'
    return Finding("event loop", Severity.OK, loop, faster if loop == "asyncio" and sys.platform != "win32" else "")


def _of_streams() -> list[Finding]:
    """Stream jobs alone need Spark and Java, so that one is missing is no problem of the servers."""
    if importlib.util.find_spec("pyspark") is None:
        remedy = 'Where SQL or jobs are to run here: pip install "millstream[streams]".'
        return [Finding("stream engine", Severity.OK, "is not installed", remedy)]
    from millstream.streams.spark.runtime.java import find_java

    engine = Finding("stream engine", Severity.OK, f"PySpark {version('pyspark')}")
    try:
        java = find_java()
        return [engine, Finding("Java for streams", Severity.OK, f"Java {java.version} of {java.origin}")]
    except MillstreamError as error:
        return [engine, Finding("Java for streams", Severity.WARNING, error.message, error.remedy)]
