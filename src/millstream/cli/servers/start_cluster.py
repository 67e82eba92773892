"""`millstream start cluster`: a nameserver, brokers and proxies, each in a process of its own, as one command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream import __version__
from millstream.cli.options import DEFAULT_NAMESERVER, ExitCode, OutputFormat
from millstream.cli.servers.serving import serve

__all__ = ["cluster"]

_Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))]


def cluster(
    *,
    brokers: Annotated[int, Parameter(validator=Number(gte=1, lte=64))] = 2,
    replicas: Annotated[int, Parameter(validator=Number(gte=1, lte=5))] = 1,
    proxies: Annotated[int, Parameter(validator=Number(gte=1, lte=64))] = 1,
    directory: Annotated[Path, Parameter(name="--dir")] = Path("millstream-data"),
    host: str = "127.0.0.1",
    advertised_host: str | None = None,
    nameserver_port: _Port = 9876,
    controller_port: _Port = 9877,
    broker_port: _Port = 10911,
    grpc_port: _Port = 8081,
    metrics_port: Annotated[int, Parameter(validator=Number(gte=-1, lte=65_535))] = -1,
    sync_flush: bool = False,
    retention_hours: Annotated[int, Parameter(validator=Number(gte=1))] = 72,
    output: Annotated[OutputFormat | None, Parameter(name=["--output", "-o"])] = None,
) -> int:
    """Run a nameserver, several brokers and one or more proxies until Ctrl-C; a process that ends is started again.

    The queues of a topic are on all brokers, so that one machine's cores share the work. With replicas each broker is
    several processes with a copy of the messages each; if the master of them ends, another one takes over.

    Parameters
    ----------
    brokers
        How many brokers.
    replicas
        How many processes each broker is; with several, a controller runs beside the nameserver.
    proxies
        How many processes share the port for RocketMQ 5 clients; each connection is one process's.
    directory
        Where each process has a folder of its own, and a log.
    host
        Address to listen on; 0.0.0.0 for all.
    advertised_host
        Host name or address that clients get; default: --host.
    nameserver_port
        Port of the nameserver; 0 takes a free one, as for the other ports.
    controller_port
        Port of the controller, where there are replicas.
    broker_port
        Port of the first broker; each further one has the tenth port after it.
    grpc_port
        Port of the proxies, for RocketMQ 5 clients.
    metrics_port
        Port of the first proxy's pages (metrics, health), each further one's has the next; -1 serves none.
    sync_flush
        Acknowledge a message only when it is on disk; without it, when it is in the page cache.
    retention_hours
        How long messages are kept; the oldest go earlier if the disk runs full.
    output
        json prints the addresses as one JSON object; the ready line stays text.
    """
    from millstream.server.local_cluster import LocalCluster, LocalClusterOptions

    settings = (f"store.sync_flush={str(sync_flush).lower()}", f"store.retention_hours={retention_hours}")
    options = LocalClusterOptions(
        directory,
        brokers,
        replicas,
        host,
        advertised_host,
        nameserver_port,
        controller_port,
        broker_port,
        grpc_port,
        settings,
        proxies,
        metrics_port,
    )

    def announce(addresses: Mapping[str, str]) -> None:
        _announce(addresses, directory, output)

    farewell = f"stopped cleanly; messages are kept in {directory}"
    serve(LocalCluster(options), announce, farewell, has_tls=False)
    return ExitCode.DONE


def _announce(addresses: Mapping[str, str], directory: Path, output: OutputFormat | None) -> None:
    if output == "json":
        print(json.dumps({**addresses, "directory": str(directory)}), flush=True)
        return
    option = "" if addresses["nameserver"] == DEFAULT_NAMESERVER else f" --nameserver {addresses['nameserver']}"
    width = max(map(len, addresses))
    lines = [f"  {name:<{width}} {address}" for name, address in addresses.items()]
    lines += [f"  {'data':<{width}} {directory.resolve()}, and a log of each process", ""]
    lines += ["try, in another terminal:", f"  millstream topic create hello{option}"]
    lines += [f'  millstream produce hello "first message"{option}', f"  millstream cluster topology{option}", ""]
    print("\n".join([f"Millstream {__version__}", *lines]), flush=True)
