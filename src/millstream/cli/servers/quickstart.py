"""`millstream quickstart`: all roles in one process, in the foreground until a signal."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream import __version__
from millstream.cli.options import DEFAULT_NAMESERVER, ExitCode, OutputFormat
from millstream.cli.servers.serving import serve

if TYPE_CHECKING:
    from millstream.security.signature import Credentials
    from millstream.security.tls import TlsMode
    from millstream.server.all_in_one import AllInOneOptions, Endpoints
    from millstream.server.protocol_ports import WantedPort

__all__ = ["quickstart"]


_FIRST_QUERY = (
    "CREATE TABLE hello (word STRING) WITH ('connector'='rocketmq', 'topic'='hello', 'format'='raw'); "
    "SELECT word FROM hello"
)


def _check_port(_kind: object, value: int | str) -> None:
    """Refuse a number that is no port, which a socket would take for another one."""
    if isinstance(value, int) and not 0 <= value <= 65_535:
        raise ValueError(f"{value} is no port; 0 to 65535 are.")


_PortCheck = Parameter(validator=_check_port)
_FurtherPort = int | Literal["auto", "off"]
_CLIENTS = {"mqtt": "MQTT 3.1.1 and 5.0", "amqp": "AMQP 0-9-1", "http": "CloudEvents and plain messages"}
"""Who comes to the ports for further protocols, by their names."""


def quickstart(
    *,
    directory: Annotated[Path, Parameter(name="--dir")] = Path("millstream-data"),
    host: str = "127.0.0.1",
    grpc_port: Annotated[int, _PortCheck] = 8081,
    remoting_port: Annotated[int, _PortCheck] = 10911,
    nameserver_port: Annotated[int, _PortCheck] = 9876,
    mqtt_port: Annotated[_FurtherPort, _PortCheck] = "auto",
    amqp_port: Annotated[_FurtherPort, _PortCheck] = "auto",
    http_port: Annotated[_FurtherPort, _PortCheck] = "auto",
    http_origins: str = "",
    webhook_networks: str = "",
    metrics_port: Annotated[int | Literal["off"], _PortCheck] = 5557,
    trace: Annotated[bool, Parameter(negative="")] = False,
    sync_flush: bool = False,
    retention_hours: Annotated[int, Parameter(validator=Number(gte=1))] = 72,
    advertised_host: str | None = None,
    secure: Annotated[bool, Parameter(negative="")] = False,
    tls: Literal["auto", "off", "permissive", "required"] = "auto",
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    grpc_transport: Literal["http2", "grpcio"] = "http2",
    tiered_url: str | None = None,
    tiered_catalog: str = "",
    output: Annotated[OutputFormat | None, Parameter(name=["--output", "-o"])] = None,
) -> int:
    """Run nameserver, broker and proxy in one process until Ctrl-C.

    Parameters
    ----------
    directory
        Where messages are kept; created if it is missing.
    host
        Address to listen on; 0.0.0.0 for all.
    grpc_port
        Port of the gRPC proxy (RocketMQ 5 clients); 0 takes a free one, as for the other ports.
    remoting_port
        Port of the broker (remoting clients, stream jobs).
    nameserver_port
        Port of the nameserver.
    mqtt_port
        Port for MQTT clients; auto is 1883 if nobody has it, off is none.
    amqp_port
        Port for AMQP 0-9-1 clients; auto is 5672 if nobody has it, off is none.
    http_port
        Port for HTTP and CloudEvents; auto is 8082 if nobody has it, off is none.
    http_origins
        Origins of web pages, separated by ;, as http://localhost:3000, that may use the HTTP port, and MQTT over
        WebSockets, from a browser; * is all. Pages of the port's own origin may in any case.
    webhook_networks
        Addresses and networks (CIDR), separated by ;, that are not public and that subscriptions over HTTP may post
        events to.
    metrics_port
        Port of the pages /metrics (Prometheus), /healthz and /readyz; off for none.
    trace
        Record the life of each message of gRPC clients; read it with millstream message trace.
    sync_flush
        Acknowledge a message only when it is on disk; without it, when it is in the page cache.
    retention_hours
        How long messages are kept; the oldest go earlier if the disk runs full.
    advertised_host
        Host name or address that clients get; default: --host.
    secure
        Turn access control on: every request must be signed by a user who may do it. The first start creates a super
        user and writes its keys to the file credentials in --dir, unless MILLSTREAM_ACCESS_KEY and
        MILLSTREAM_SECRET_KEY name one.
    tls
        Answer TLS on all ports: permissive answers plaintext too, required does not. auto is permissive, and off if no
        certificate is given and none can be made.
    tls_cert
        Certificate chain in PEM, read again at SIGHUP; default: a self-signed one, made with openssl.
    tls_key
        Its key in PEM, without a password.
    grpc_transport
        What carries gRPC: http2 is the server's own, grpcio the one of releases before, which goes with the next.
    tiered_url
        Where old messages go instead of away: s3://bucket/prefix, gs://, az:// or file:///directory. Keys of access are
        those of the environment; see docs/tiered-storage.md.
    tiered_catalog
        The catalogue of the Iceberg tables over copies of topics, as sqlite:////directory/tables.db; without one there
        are Parquet files alone.
    output
        json prints the addresses as one JSON object; the ready line stays text.
    """
    from millstream.client.profiles import credentials_of_environment
    from millstream.proxy.grpc.server import GrpcTransportKind
    from millstream.security.tls import TlsFiles, TlsMode
    from millstream.server.all_in_one import AllInOneOptions
    from millstream.server.columns.catalog import checked_catalog
    from millstream.tiered.places import ObjectPlace

    if (tls_cert is None) != (tls_key is None) or (tls_cert is not None and tls == "off"):
        print("error: --tls-cert and --tls-key belong together, and not with --tls off.", file=sys.stderr)
        return ExitCode.USAGE
    options = AllInOneOptions(
        directory=directory,
        host=host,
        grpc_port=grpc_port,
        remoting_port=remoting_port,
        nameserver_port=nameserver_port,
        protocols=_protocols(
            {"mqtt": mqtt_port, "amqp": amqp_port, "http": http_port},
            webhook_networks=_split_list(webhook_networks),
            http_origins=_split_list(http_origins),
        ),
        metrics_port=None if metrics_port == "off" else metrics_port,
        trace=trace,
        sync_flush=sync_flush,
        retention_hours=retention_hours,
        advertised_host=advertised_host,
        secure=secure,
        first_user=credentials_of_environment() if secure else None,
        tls=None if tls == "off" else TlsMode(tls),
        tls_files=TlsFiles(tls_cert, tls_key) if tls_cert and tls_key else None,
        grpc_transport=GrpcTransportKind(grpc_transport),
        cold=ObjectPlace(tiered_url) if tiered_url else None,
        catalog=checked_catalog(tiered_catalog),
    )
    from millstream.server.all_in_one import AllInOne

    server = AllInOne(options)

    def announce(endpoints: Endpoints) -> None:
        _announce(endpoints, options, output, has_tls=server.site.identity is not None)
        if output != "json":
            if options.secure:
                _announce_access(options, server.made_user)
            if options.tls in (TlsMode.PERMISSIVE, TlsMode.REQUIRED):
                _announce_tls(options, options.tls)

    farewell = f"stopped cleanly; messages are kept in {options.directory}"
    serve(server, announce, farewell, has_tls=options.tls is not None)
    return ExitCode.DONE


def _split_list(text: str) -> list[str]:
    return [one.strip() for one in text.split(";") if one.strip()]


def _protocols(
    ports: Mapping[str, _FurtherPort], *, webhook_networks: Sequence[str], http_origins: Sequence[str]
) -> tuple[WantedPort, ...]:
    """The ports for further protocols. The usual one is left to whoever has it."""
    from millstream.server import protocol_ports as known

    usual: dict[str, tuple[int, known.PortMaker]] = {
        "mqtt": (known.MQTT_PORT, partial(known.mqtt_port, http_origins=http_origins)),
        "amqp": (known.AMQP_PORT, known.amqp_port),
        "http": (
            known.HTTP_PORT,
            partial(known.http_port, webhook_networks=webhook_networks, http_origins=http_origins),
        ),
    }
    # Settings are checked by the adapters, at the start.
    is_deferred = not (webhook_networks or http_origins)
    wanted = []
    for name, port in ports.items():
        number, make = usual[name]
        if port == "auto":
            wanted.append(known.WantedPort(name, number, make, must_open=False, is_deferred=is_deferred))
        elif port != "off":
            wanted.append(known.WantedPort(name, port, make, is_deferred=is_deferred))
    return tuple(wanted)


def _announce(endpoints: Endpoints, options: AllInOneOptions, output: OutputFormat | None, *, has_tls: bool) -> None:
    nameserver, broker, grpc = (
        f"{address.host}:{address.port}" for address in (endpoints.nameserver, endpoints.broker, endpoints.grpc)
    )
    level = (
        "on disk before the answer" if options.sync_flush else "page cache (survives kill -9; --sync-flush for disk)"
    )
    metrics = None if endpoints.metrics is None else f"{endpoints.metrics.host}:{endpoints.metrics.port}"
    further = {name: f"{address.host}:{address.port}" for name, address in endpoints.protocols.items()}
    if output == "json":
        addresses = {
            "nameserver": nameserver,
            "broker": broker,
            "grpc": grpc,
            **further,
            "metrics": metrics,
            "directory": str(options.directory),
        }
        print(json.dumps(addresses), flush=True)
    else:
        pages = "off" if metrics is None else f"{metrics}    /metrics, /healthz, /readyz"
        lines = [f"  {name:<12} {address}    {_CLIENTS[name]}" for name, address in further.items()]
        lines += [f"  {name:<12} off: {why}" for name, why in endpoints.missing.items()]
        further_lines = "".join(f"\n{line}" for line in lines)
        option = "" if nameserver == DEFAULT_NAMESERVER else f" --nameserver {nameserver}"
        print(
            f"""Millstream {__version__}
  gRPC proxy   {grpc}    RocketMQ 5 clients{further_lines}
  broker       {broker}   remoting clients, stream jobs
  nameserver   {nameserver}
  metrics      {pages}
  TLS          {"on all ports; --tls says which kinds of connection are answered" if has_tls else "off"}
  data         {options.directory.resolve()}
  acknowledged {level}

try, in another terminal:
  millstream topic create hello{option}
  millstream produce hello "first message"{option}
  millstream consume hello --count 1{option}
  millstream sql --bounded{option} -e "{_FIRST_QUERY}"
""",
            flush=True,
        )


def _announce_access(options: AllInOneOptions, made: Credentials | None) -> None:
    from millstream.server.access import CREDENTIALS_FILE

    file = options.directory / CREDENTIALS_FILE
    lines = ["access control is on; requests must be signed:"]
    if made is not None and made is not options.first_user:
        lines += [
            f"  super user   {made.access_key}    secret {made.secret_key}",
            f"  these keys are in {file} and are not shown again",
        ]
    if file.exists():
        lines.append(f"  first, in the other terminal: set -a; . {file}; set +a")
    print("\n".join([*lines, ""]), flush=True)


def _announce_tls(options: AllInOneOptions, mode: TlsMode) -> None:
    print(f"TLS is {mode.value} on all ports")
    if options.tls_files is None:
        file = options.directory / "tls" / "certificate.pem"
        print(f"  for our own commands: export MILLSTREAM_TLS_CA={file}")
    print(flush=True)
