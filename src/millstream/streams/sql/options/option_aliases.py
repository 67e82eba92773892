"""Maps option names of rsqldb, RocketMQ's Flink connector and Kafka to ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millstream.streams.connectors.options import OptionProblem

__all__ = ["METADATA_ALIASES", "Renamed", "renamed_options"]

METADATA_ALIASES = {"partition": "queue-id", "offset": "queue-offset", "timestamp": "store-timestamp", "tags": "tag"}
"""Metadata by Kafka's and RocketMQ's names; blink's HEADER columns have underscores around theirs."""

_CONNECTORS = {
    "metaq": "rocketmq", "kafka": "rocketmq", "upsert-kafka": "upsert-rocketmq", "file": "filesystem", "rds": "jdbc",
    "db": "jdbc", "mysql": "jdbc",
    **dict.fromkeys(("elasticsearch-6", "elasticsearch-7", "elasticsearch-8", "opensearch", "opensearch-2"), "elasticsearch"),
}  # fmt: skip

_CONNECTOR_KEYS = ("connector", "type", "connector.type")
"""What names the connector: Flink's key, rsqldb's, and that of Flink before 1.11, whose other keys have such beginnings."""

_NAMES = {
    "consumergroup": "consumer.group", "properties.group.id": "consumer.group", "groupname": "consumer.group",
    "namesrvaddr": "nameserver", "nameserveraddress": "nameserver", "nameserver.address": "nameserver",
    "tags": "tag", "data_format": "format", "value.format": "format", "fielddelimiter": "csv.field-delimiter",
    "filepath": "path", "tablename": "table-name", "username": "username", "cachettlms": "lookup.partial-cache.expire-after-write",
    "connector.path": "path", "connector.topic": "topic", "connector.url": "url", "connector.table": "table-name",
    "connector.username": "username", "connector.password": "password", "connector.driver": "driver",
    "properties.auto.offset.reset": "scan.startup.group-offsets.reset",
    "connector.properties.auto.offset.reset": "scan.startup.group-offsets.reset",
    "connector.startup-mode": "scan.startup.mode", "connector.properties.group.id": "consumer.group",
    "accesskey": "access-key", "secretkey": "secret-key",
    "format.type": "format", "format.field-delimiter": "csv.field-delimiter",
    "lookup.cache.max-rows": "lookup.partial-cache.max-rows", "lookup.cache.ttl": "lookup.partial-cache.expire-after-write",
    "lookup.cache.caching-missing-key": "lookup.partial-cache.cache-missing-key",
}  # fmt: skip
"""Other names in lower case. Values stay as they are; times without a unit are milliseconds in both."""

_IGNORED = {
    "properties.bootstrap.servers": "a topic is found through 'nameserver', by default the session's",
    "connector.properties.bootstrap.servers": "a topic is found through 'nameserver', by default the session's",
    **dict.fromkeys(
        ("connector.property-version", "connector.version", "format.property-version", "update-mode", "format.derive-schema"),
        "a table's options and columns say it all",
    ),
    "producergroup": "rows are sent without a group",
    **dict.fromkeys(
        ("maxthread", "maxfetchloggroupsize", "pullintervalms", "batchsize", "autoflushsize", "autoflushtimegap",
         "scan.parallelism", "sink.parallelism", "lookup.async", "islarge", "sink.partitioner"),
        "each micro-batch is read and written whole, by as many tasks as there are cores",
    ),
    **dict.fromkeys(
        ("sink.delivery-guarantee", "sink.semantic", "sink.transactional-id-prefix"),
        "docs/sql.md says how often each sink may see a row again",
    ),
    "sink.buffer-flush.max-rows": "rows are written at the end of each micro-batch",
    "sink.buffer-flush.interval": "rows are written at the end of each micro-batch",
    "scan.topic-partition-discovery.interval": "new queues are always found",
    "standard-error": "rows are shown on the terminal",
}  # fmt: skip
"""Options that do nothing here, in lower case, with the reason; a connector that has one of its own keeps it."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """Options under our names. `written` says for each what the script called it; `notes` are sentences."""

    options: dict[str, str]
    written: dict[str, str]
    notes: tuple[str, ...]


def renamed_options(options: Mapping[str, str], known_of: Callable[[str], frozenset[str]]) -> Renamed:
    """The options with the names that our connectors have; `known_of` gives those of a connector.

    Raises OptionProblem where one is given under two names, or says what has no equal here.
    """
    renamed, written, notes = dict[str, str](), dict[str, str](), list[str]()
    connector = _connector(options, renamed, written, notes)
    renamed_key = written.get("connector", "connector")
    known = known_of(connector)
    for key, value in options.items():
        if key == renamed_key:
            continue
        name = key if key in known else _NAMES.get(key.lower(), key)
        if name not in known and key.lower() in _IGNORED:
            notes.append(f"'{key}' does nothing: {_IGNORED[key.lower()]}.")
            continue
        name, value = _said_otherwise(name, key, value, notes)
        if not name:
            continue
        if name in renamed:
            raise OptionProblem(key, f"'{key}' and '{written[name]}' say the same.", "Leave one of them out.")
        if name != key:
            notes.append(f"'{key}' is read as '{name}'.")
        renamed[name], written[name] = value, key
    return Renamed(renamed, written, tuple(notes))


def _connector(options: Mapping[str, str], renamed: dict[str, str], written: dict[str, str], notes: list[str]) -> str:
    key = next((key for key in _CONNECTOR_KEYS if key in options), "connector")
    if key not in options:
        return ""
    value = options[key]
    name = _CONNECTORS.get(value.lower(), value)
    if name != value:
        notes.append(f"'{value}' is read as '{name}'.")
    renamed["connector"], written["connector"] = name, key
    return name


def _said_otherwise(name: str, key: str, value: str, notes: list[str]) -> tuple[str, str]:
    """Options whose values are other ones here; a blank name for those that say what is so anyway."""
    lower = key.lower()
    if lower == "isjsondata":
        return ("format", "json" if value.lower() == "true" else "csv")
    if lower in ("encoding", "msgisjsonarray"):
        expected = "utf-8" if lower == "encoding" else "false"
        if value.lower().replace("utf8", "utf-8") != expected:
            raise OptionProblem(key, f"'{key}' can only be '{expected}'.", None)
        notes.append(f"'{key}' = '{value}' is so anyway.")
        return "", value
    return name, value
