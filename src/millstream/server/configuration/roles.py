"""The settings of each role. Parsing, the reference and the docs are derived from these fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from millstream.server.configuration.setting import PORTS, setting

__all__ = [
    "ROLES",
    "AccessControl",
    "BrokerConfiguration",
    "ControllerConfiguration",
    "ControllerSettings",
    "JobsConfiguration",
    "NameserverConfiguration",
    "NameserverController",
    "ProxyConfiguration",
    "SharedDriver",
    "SqlGatewayConfiguration",
    "Store",
    "Tiered",
    "Tls",
]

_HOST = "Address to listen on; 0.0.0.0 for all."
_TOLD_HOST = "Host name or address that others get; empty: host, or this machine's own address for 0.0.0.0."
_METRICS = "Port of the pages /metrics, /healthz and /readyz; 0 takes a free one, -1 serves none."
_NAMESERVERS = "host:port of each nameserver. A host name is looked up again every 30 s."
_METRICS_PORTS: Final = (-1, 65_535)
_MAX_HOURS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS on all ports of the role. What the role trusts as a client is in MILLSTREAM_TLS_CA."""

    mode: str = setting(
        "auto",
        "permissive answers plaintext too, required does not; auto is permissive, and off if no certificate is "
        "given and none can be made.",
        choices=("auto", "off", "permissive", "required"),
    )
    certificate: str = setting("", "File with the certificate chain in PEM; empty: a self-signed one is made.")
    key: str = setting("", "File with its key in PEM, without a password.")


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Access control. The keys of the first super user, with which the roles also sign their requests to each other,
    are in MILLSTREAM_ACCESS_KEY and MILLSTREAM_SECRET_KEY: secrets do not stand in files."""

    enabled: bool = setting(False, "Every request must be signed by a user who may do it.")


@dataclass(frozen=True, slots=True)
class Store:
    """How a broker keeps messages."""

    sync_flush: bool = setting(False, "Acknowledge a message when it is on disk; else when it is in the page cache.")
    retention_hours: int = setting(72, "How long messages are kept.", bounds=(1, _MAX_HOURS))


@dataclass(frozen=True, slots=True)
class Tiered:
    """Cold messages in an object store: what is old leaves the disk once it is there, and is read from there. Keys of
    access come from the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for S3."""

    url: str = setting(
        "", "Where: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///directory; empty: off."
    )
    endpoint: str = setting("", "Of a store that speaks S3's protocol and is not Amazon's, as http://127.0.0.1:9000.")
    region: str = setting("", "Of S3; empty: as the environment says.")
    topics: str = setting("*", "Topics whose names match this pattern, as of a shell, go there.")
    keep_hours: int = setting(
        72,
        "How long messages stay there whose topic has no reserve.time (tieredStoreFileReservedTime).",
        bounds=(1, _MAX_HOURS),
    )
    roll_minutes: int = setting(
        60, "After how long messages go there, however few they are; else with 64 MiB of the log.", bounds=(1, 100_000)
    )
    when_behind: str = setting(
        "refuse_writes",
        "What a full disk does while messages cannot go there: refuse new ones, or let old ones go that are lost then.",
        choices=("refuse_writes", "drop_unuploaded"),
    )
    cache_mb: int = setting(128, "Megabytes of cold messages kept in memory for readers.", bounds=(1, 1_000_000))
    catalog: str = setting(
        "",
        "The catalogue of the Iceberg tables over copies of topics, an address of SQLAlchemy without a password, as "
        "sqlite:////var/lib/millstream/tables.db; empty: their Parquet files alone.",
    )


@dataclass(frozen=True, slots=True)
class Replicas:
    """How a broker shares its messages with the other replicas of its name. The same at all of them, but the
    priority."""

    all_in_set: bool = setting(
        True, "Acknowledge a message when every member of the sync state set has it (allAckInSyncStateSet)."
    )
    in_sync_replicas: int = setting(
        2, "Without all_in_set: when so many replicas have it, the master among them (inSyncReplicas).", bounds=(1, 64)
    )
    min_in_sync: int = setting(
        1, "Take messages only while the set has so many members (minInSyncReplicas).", bounds=(1, 64)
    )
    ack: str = setting(
        "written",
        "What a replica has to have done: written it, or flushed it to the disk.",
        choices=("written", "flushed"),
    )
    priority: int = setting(
        2**31 - 1,
        "The lower one is elected among equally good replicas (brokerElectionPriority).",
        bounds=(0, 2**31 - 1),
    )
    serve_reads: bool = setting(
        True, "As a replica: let clients read what is confirmed (slaveReadEnable). Else all goes to the master."
    )
    old_percent: int = setting(
        40,
        "RocketMQ's consumers that are farther behind than this share of the machine's memory are sent to a replica "
        "(accessMessageInMemoryMaxRatio); they are not where that does not serve reads.",
        bounds=(0, 100),
    )
    scrub_bytes_per_s: int = setting(
        4 * 1024 * 1024,
        "How fast the log is looked through for damaged bytes, which are fetched from another replica; 0: not at all.",
        bounds=(0, 2**31 - 1),
    )


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """How a controller decides. Those of all controllers of a group are to be the same, but for the id."""

    group: str = setting("DefaultControllerGroup", "The name of the group (RocketMQ: controllerDLegerGroup).")
    id: str = setting("n0", "Which of the peers this one is (controllerDLegerSelfId).")
    peers: tuple[str, ...] = setting(
        (), "All controllers, each as id-host:port (controllerDLegerPeers); empty: this one is alone."
    )
    silence_ms: int = setting(
        2000, "Silence after which a replica is dead that names no time of its own.", bounds=(500, 60_000)
    )
    lease_ms: int = setting(
        3000, "For how long an answered heartbeat lets a master go on that does not wait for every member of its set.",
        bounds=(500, 60_000),
    )  # fmt: skip
    unclean_elections: bool = setting(
        False, "Elect a replica that may lack acknowledged messages, if no other is left (enableElectUncleanMaster)."
    )
    notify_brokers: bool = setting(
        True, "Tell replicas of elections at once; else they find out when they ask (notifyBrokerRoleChanged)."
    )


@dataclass(frozen=True, slots=True)
class NameserverController(ControllerSettings):
    """A controller in the process of a nameserver, on a port of its own."""

    enabled: bool = setting(False, "Run a controller as well (enableControllerInNamesrv).")
    port: int = setting(9877, "Port of the controller; 0 takes a free one.", bounds=PORTS)


@dataclass(frozen=True, slots=True)
class NameserverConfiguration:
    """A nameserver: it tells where topics are and keeps no messages."""

    host: str = setting("127.0.0.1", _HOST)
    advertised_host: str = setting("", _TOLD_HOST)
    port: int = setting(9876, "Port of the nameserver; 0 takes a free one.", bounds=PORTS)
    metrics_port: int = setting(-1, _METRICS, bounds=_METRICS_PORTS)
    directory: str = setting("millstream-nameserver", "Where users, certificates and tools' values are kept.")
    controller: NameserverController = field(default_factory=NameserverController)
    tls: Tls = field(default_factory=Tls)
    access: AccessControl = field(default_factory=AccessControl)


@dataclass(frozen=True, slots=True)
class ControllerConfiguration:
    """A controller: it decides which replica of a broker is the master, and keeps no messages."""

    host: str = setting("127.0.0.1", _HOST)
    advertised_host: str = setting("", _TOLD_HOST)
    port: int = setting(9877, "Port of the controller; 0 takes a free one.", bounds=PORTS)
    metrics_port: int = setting(-1, _METRICS, bounds=_METRICS_PORTS)
    directory: str = setting("millstream-controller", "Where users, certificates and what was decided are kept.")
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    tls: Tls = field(default_factory=Tls)
    access: AccessControl = field(default_factory=AccessControl)


@dataclass(frozen=True, slots=True)
class BrokerConfiguration:
    """A broker: it keeps messages."""

    name: str = setting("broker-a", "The broker's name; no other broker of the nameservers has it.")
    cluster: str = setting("DefaultCluster", "The cluster that it belongs to.")
    host: str = setting("127.0.0.1", _HOST)
    advertised_host: str = setting("", _TOLD_HOST)
    port: int = setting(10911, "Port of the broker; 0 takes a free one.", bounds=PORTS)
    metrics_port: int = setting(-1, _METRICS, bounds=_METRICS_PORTS)
    directory: str = setting("millstream-data", "Where messages are kept; created if it is missing.")
    nameservers: tuple[str, ...] = setting(("127.0.0.1:9876",), _NAMESERVERS)
    controllers: tuple[str, ...] = setting(
        (), "host:port of each controller, for a broker with replicas: those have its name and other directories."
    )
    store: Store = field(default_factory=Store)
    tiered: Tiered = field(default_factory=Tiered)
    replicas: Replicas = field(default_factory=Replicas)
    tls: Tls = field(default_factory=Tls)
    access: AccessControl = field(default_factory=AccessControl)


@dataclass(frozen=True, slots=True)
class ProxyConfiguration:
    """A proxy: it serves gRPC and remoting clients from the brokers that the nameservers name."""

    host: str = setting("127.0.0.1", _HOST)
    advertised_host: str = setting("", _TOLD_HOST)
    grpc_port: int = setting(8081, "Port for RocketMQ 5 clients; 0 takes a free one.", bounds=PORTS)
    remoting_port: int = setting(
        8080, "Port for remoting clients of RocketMQ 4 and 5; 0 takes a free one, -1 serves none.", bounds=(-1, 65_535)
    )
    mqtt_port: int = setting(
        -1, "Port for MQTT 3.1.1 and 5.0; 0 takes a free one, -1 serves none.", bounds=(-1, 65_535)
    )
    mqtt_topics: tuple[str, ...] = setting(
        (),
        "Topics that hold the messages of MQTT topics, as factory/#=telemetry; the first that fits counts, else it is "
        "mqtt. The same at all proxies.",
    )
    amqp_port: int = setting(-1, "Port for AMQP 0-9-1; 0 takes a free one, -1 serves none.", bounds=(-1, 65_535))
    amqp_virtual_hosts: tuple[str, ...] = setting(
        (), "Virtual hosts beside /; each has the topics and groups of the namespace of its name."
    )
    http_port: int = setting(
        -1, "Port for HTTP and CloudEvents; 0 takes a free one, -1 serves none.", bounds=(-1, 65_535)
    )
    http_origins: tuple[str, ...] = setting(
        (),
        "Origins of web pages, as https://shop.example:8443, that may use the HTTP port (CORS, WebSockets), and MQTT "
        "over WebSockets, from a browser, beside the port's own; * is all, whose requests come without the user's "
        "secret.",
    )
    webhook_networks: tuple[str, ...] = setting(
        (), "Addresses and networks (CIDR) that are not public and that subscriptions over HTTP may post events to."
    )
    access_networks: tuple[str, ...] = setting(
        (), "Further remoting ports, as host:port=announced_host:port: their clients get the announced address."
    )
    share_port: bool = setting(
        False,
        "Let several proxies of one machine and user listen on grpc_port (SO_REUSEPORT): all of them are to say so. "
        "Linux spreads the connections over them.",
    )
    grpc_transport: str = setting(
        "http2",
        "What carries gRPC: http2 is the server's own, grpcio the one of releases before, which goes with the next.",
        choices=("http2", "grpcio"),
    )
    metrics_port: int = setting(-1, _METRICS, bounds=_METRICS_PORTS)
    directory: str = setting("millstream-proxy", "Where users and certificates are kept.")
    nameservers: tuple[str, ...] = setting(("127.0.0.1:9876",), _NAMESERVERS)
    clusters: tuple[str, ...] = setting(
        (), "Topics of other clusters, as pattern=host:port;host:port of their nameservers; the first that fits counts."
    )
    throttle: tuple[str, ...] = setting(
        (),
        "What each client may send and receive in a second, as client=mobile-* group=* user=* calls=100 bytes=1000000.",
    )
    trace: bool = setting(False, "Record the life of each message in the topic RMQ_SYS_TRACE_TOPIC.")
    tls: Tls = field(default_factory=Tls)
    access: AccessControl = field(default_factory=AccessControl)


@dataclass(frozen=True, slots=True)
class SharedDriver:
    """The driver that jobs share which ask for nothing of their own."""

    cores: int = setting(1, "Its processor cores.", bounds=(1, 1024))
    memory_mb: int = setting(1024, "MiB of its Java heap.", bounds=(512, 1_000_000))


@dataclass(frozen=True, slots=True)
class JobsConfiguration:
    """A job server: it keeps jobs in a topic and runs them. Several share the jobs; one of them has them at a time.
    What clients must send as Authorization: Bearer is in MILLSTREAM_JOB_TOKEN; without it only this machine is
    listened to."""

    host: str = setting("127.0.0.1", _HOST)
    advertised_host: str = setting("", _TOLD_HOST)
    port: int = setting(8084, "Port of the interface over HTTP; 0 takes a free one.", bounds=PORTS)
    metrics_port: int = setting(-1, _METRICS, bounds=_METRICS_PORTS)
    directory: str = setting("millstream-jobs", "Where logs are kept, and checkpoints unless they are elsewhere.")
    checkpoint_root: str = setting(
        "", "Where the checkpoints of jobs are kept, seen by all job servers; empty: checkpoints in directory."
    )
    nameservers: tuple[str, ...] = setting(("127.0.0.1:9876",), _NAMESERVERS)
    cores: int = setting(0, "Processor cores that all drivers share; 0: those of the machine.", bounds=(0, 10_000))
    memory_mb: int = setting(
        0, "MiB that all drivers share; 0: three quarters of the machine's memory.", bounds=(0, 100_000_000)
    )
    max_drivers: int = setting(8, "Drivers at the same time at most.", bounds=(1, 1000))
    shared: SharedDriver = field(default_factory=SharedDriver)
    tls: Tls = field(default_factory=Tls)


@dataclass(frozen=True, slots=True)
class SqlGatewayConfiguration:
    """An SQL gateway: Flink's SQL client and JDBC driver talk to it, and it runs their statements on its machine."""

    host: str = setting("127.0.0.1", "Address to listen on. Others than this machine's own need access.enabled.")
    advertised_host: str = setting("", _TOLD_HOST)
    port: int = setting(8083, "Port for Flink's clients (REST); 0 takes a free one.", bounds=PORTS)
    metrics_port: int = setting(-1, _METRICS, bounds=_METRICS_PORTS)
    directory: str = setting(
        "millstream-sql-gateway", "Where users, certificates and the checkpoints of named jobs are kept."
    )
    nameservers: tuple[str, ...] = setting(("127.0.0.1:9876",), _NAMESERVERS)
    warm: bool = setting(True, "Start Spark at once; else with the first query.")
    tls: Tls = field(default_factory=Tls)
    access: AccessControl = field(default_factory=AccessControl)


ROLES: Final[dict[str, type]] = {
    "nameserver": NameserverConfiguration,
    "controller": ControllerConfiguration,
    "broker": BrokerConfiguration,
    "proxy": ProxyConfiguration,
    "jobs": JobsConfiguration,
    "sql-gateway": SqlGatewayConfiguration,
}
"""Role -> its configuration."""
