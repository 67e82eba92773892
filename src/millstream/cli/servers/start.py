"""`millstream start`: one role in a process of its own, in the foreground until a signal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter

from millstream import __version__
from millstream.cli.options import ExitCode, OutputFormat
from millstream.cli.servers.serving import serve
from millstream.model.errors import ExtraMissing

if TYPE_CHECKING:
    from millstream.model.message import Address
    from millstream.server.jobs_role import JobsRole
    from millstream.server.separate import RoleConfiguration, SeparateRole

__all__ = ["broker", "controller", "jobs", "nameserver", "proxy", "sql_gateway"]

_T = TypeVar("_T")


@Parameter(name="*")
@dataclass(frozen=True)
class RoleOptions:
    """What every role takes; each option stands for the setting of its name and goes before the file."""

    config: Annotated[
        Path | None, Parameter(name=["--config", "-c"], help="Configuration file; millstream config reference has one.")
    ] = None
    set: Annotated[
        tuple[str, ...], Parameter(help="Any setting, as name=value; may be given several times.", negative="")
    ] = ()
    directory: Annotated[str | None, Parameter(name="--dir", help="Where the role keeps its data.")] = None
    host: Annotated[str | None, Parameter(help="Address to listen on.")] = None
    advertised_host: Annotated[str | None, Parameter(help="Host name or address that others get.")] = None
    metrics_port: Annotated[int | None, Parameter(help="Port of the pages; -1 serves none.")] = None
    with_parent: Annotated[bool, Parameter(help="Stop at the end of standard input.", negative="", show=False)] = False
    output: Annotated[
        OutputFormat | None,
        Parameter(name=["--output", "-o"], help="json prints the addresses as one object; the ready line stays text."),
    ] = None


def nameserver(*, port: int | None = None, given: RoleOptions = RoleOptions()) -> int:
    """Run a nameserver until Ctrl-C: it tells clients which broker has which topic.

    Parameters
    ----------
    port
        Port of the nameserver; 0 takes a free one.
    """
    from millstream.server.configuration.roles import NameserverConfiguration

    return _run(_configuration_of(NameserverConfiguration, given, {"port": port}), given)


def controller(
    *, port: int | None = None, id: str | None = None, peers: str | None = None, given: RoleOptions = RoleOptions()
) -> int:
    """Run a controller until Ctrl-C: it decides which replica of a broker is the master.

    Parameters
    ----------
    port
        Port of the controller; 0 takes a free one.
    id
        Which of the peers this one is, as n0.
    peers
        id-host:port of each controller, separated by ;. Without them this one is alone.
    """
    from millstream.server.configuration.roles import ControllerConfiguration

    options = {"port": port, "controller.id": id, "controller.peers": _split_addresses(peers)}
    return _run(_configuration_of(ControllerConfiguration, given, options), given)


def broker(
    *,
    name: str | None = None,
    cluster: str | None = None,
    port: int | None = None,
    nameservers: str | None = None,
    given: RoleOptions = RoleOptions(),
) -> int:
    """Run a broker until Ctrl-C: it keeps messages, and registers with its nameservers.

    Parameters
    ----------
    name
        The broker's name; no other broker of the nameservers has it.
    cluster
        The cluster that it belongs to.
    port
        Port of the broker; 0 takes a free one.
    nameservers
        host:port of each nameserver, separated by ;.
    """
    from millstream.server.configuration.roles import BrokerConfiguration

    options = {"name": name, "cluster": cluster, "port": port, "nameservers": _split_addresses(nameservers)}
    return _run(_configuration_of(BrokerConfiguration, given, options), given)


def proxy(
    *,
    grpc_port: int | None = None,
    remoting_port: int | None = None,
    mqtt_port: int | None = None,
    amqp_port: int | None = None,
    http_port: int | None = None,
    nameservers: str | None = None,
    given: RoleOptions = RoleOptions(),
) -> int:
    """Run a proxy until Ctrl-C: it serves clients from the brokers that the nameservers name.

    Parameters
    ----------
    grpc_port
        Port for RocketMQ 5 clients; 0 takes a free one.
    remoting_port
        Port for remoting clients of RocketMQ 4 and 5; 0 takes a free one, -1 serves none.
    mqtt_port
        Port for MQTT clients; 0 takes a free one, -1 serves none.
    amqp_port
        Port for AMQP 0-9-1 clients; 0 takes a free one, -1 serves none.
    http_port
        Port for HTTP and CloudEvents; 0 takes a free one, -1 serves none.
    nameservers
        host:port of each nameserver, separated by ;.
    """
    from millstream.server.configuration.roles import ProxyConfiguration

    options = {
        "grpc_port": grpc_port,
        "remoting_port": remoting_port,
        "mqtt_port": mqtt_port,
        "amqp_port": amqp_port,
        "http_port": http_port,
        "nameservers": _split_addresses(nameservers),
    }
    return _run(_configuration_of(ProxyConfiguration, given, options), given)


def jobs(
    *,
    port: int | None = None,
    checkpoint_root: str | None = None,
    nameservers: str | None = None,
    given: RoleOptions = RoleOptions(),
) -> int:
    """Run a job server until Ctrl-C: it keeps jobs in a topic, runs them and takes them over HTTP.

    Parameters
    ----------
    port
        Port of the interface over HTTP; 0 takes a free one.
    checkpoint_root
        Where the checkpoints of jobs are kept; several job servers must see the same.
    nameservers
        host:port of each nameserver, separated by ;.
    """
    from millstream.server.configuration.roles import JobsConfiguration

    options = {"port": port, "checkpoint_root": checkpoint_root, "nameservers": _split_addresses(nameservers)}
    configuration = _configuration_of(JobsConfiguration, given, options)
    try:
        from millstream.server.jobs_role import JobsRole
    except ModuleNotFoundError as error:
        raise ExtraMissing("The job server", error.name, extra="streams") from None
    role = JobsRole(configuration)
    _serve_role(role, given, "stopped cleanly; jobs go on when a job server runs", configuration.tls.mode)
    return ExitCode.DONE


def sql_gateway(*, port: int | None = None, nameservers: str | None = None, given: RoleOptions = RoleOptions()) -> int:
    """Run an SQL gateway until Ctrl-C: Flink's SQL client and JDBC driver run their statements there.

    Parameters
    ----------
    port
        Port for Flink's clients; 0 takes a free one.
    nameservers
        host:port of each nameserver, separated by ;.
    """
    from millstream.server.configuration.roles import SqlGatewayConfiguration

    options = {"port": port, "nameservers": _split_addresses(nameservers)}
    return _run(_configuration_of(SqlGatewayConfiguration, given, options), given)


def _split_addresses(addresses: str | None) -> tuple[str, ...] | None:
    return None if addresses is None else tuple(filter(None, map(str.strip, addresses.split(";"))))


def _configuration_of(kind: type[_T], given: RoleOptions, options: Mapping[str, Any]) -> _T:
    """The file's settings, over them those of `--set`, over them the options."""
    from millstream.server.configuration.document import configuration_of, parse_value, read_document

    shared = {name: getattr(given, name) for name in ("directory", "host", "advertised_host", "metrics_port")}
    overrides = dict(map(parse_value, given.set))
    overrides |= {name: value for name, value in {**shared, **options}.items() if value is not None}
    document = {} if given.config is None else read_document(given.config)
    return configuration_of(kind, document, str(given.config), overrides)


def _run(configuration: RoleConfiguration, given: RoleOptions) -> int:
    from millstream.server.separate import SeparateRole

    server = SeparateRole(configuration)
    farewell = "stopped cleanly" + ("; messages are kept in " + configuration.directory) * server.holds_messages
    _serve_role(server, given, farewell, configuration.tls.mode)
    return ExitCode.DONE


def _serve_role(server: SeparateRole | JobsRole, given: RoleOptions, farewell: str, tls_mode: str) -> None:
    def announce(addresses: Mapping[str, Address]) -> None:
        _announce(addresses, server, given.output)

    serve(server, announce, farewell, has_tls=tls_mode != "off", ends_with_input=given.with_parent)


def _announce(addresses: Mapping[str, Address], server: Any, output: OutputFormat | None) -> None:
    shown = {name: f"{address.host}:{address.port}" for name, address in addresses.items()}
    if output == "json":
        print(json.dumps({**shown, "directory": str(server.directory)}), flush=True)
        return
    lines: Sequence[str] = [f"  {name:<12} {address}" for name, address in shown.items()]
    print("\n".join([f"Millstream {__version__}", *lines, ""]), flush=True)
