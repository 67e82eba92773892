"""The connectors `rocketmq` and `upsert-rocketmq`: topics, message formats, and start positions."""

from __future__ import annotations

from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.options import LOOKUP_OPTIONS, Option, choice, count, duration, flag, text
from millstream.streams.plan.types import BIGINT, INT, STRING, DataType, TypeKind

__all__ = ["ROCKETMQ", "TOPIC_METADATA", "TOPIC_OPTIONS", "UPSERT_ROCKETMQ"]

_CHANGELOG_FORMATS = ("debezium-json", "canal-json", "maxwell-json", "changelog-json")
"""Formats whose messages say what changed: inserts, updates, deletions."""

_BINARY_FORMATS = ("avro", "avro-confluent", "protobuf")
"""Formats whose messages have a schema."""

_REGISTERED = ("avro-confluent", "debezium-avro-confluent")
_AVRO = ("avro", *_REGISTERED)

_FORMATS = ("json", "csv", "raw", *_BINARY_FORMATS, *_CHANGELOG_FORMATS, "debezium-avro-confluent")
"""How rows can be written in messages."""

_UPSERT_FORMATS = ("json", "csv", "raw", *_BINARY_FORMATS)
"""The same of rows that are the last ones of their keys."""

_INSTANT = DataType(TypeKind.TIMESTAMP_LTZ, precision=3)

TOPIC_METADATA: dict[str, DataType] = {
    "topic": STRING,
    "queue-id": INT,
    "queue-offset": BIGINT,
    "message-id": STRING,
    "keys": STRING,
    "tag": STRING,
    "born-timestamp": _INSTANT,
    "store-timestamp": _INSTANT,
    "properties": DataType(TypeKind.MAP, elements=(STRING, STRING)),
}
"""What a message says beside its body."""

_WRITABLE_METADATA = ("keys", "tag", "properties")
"""What of that a row may say of its own message; the rest is the client's and the broker's."""

_NAME = r"[%|a-zA-Z0-9_-]{1,127}"
_TOPIC_WORDS = "a legal topic name (letters, digits, _ - % |)"
_CHARACTER = r"(?s).|\\[tnr0]|\\u[0-9a-fA-F]{4}"
_OFFSETS = r"((broker:[^,;:]+,)?(queue|partition):\d{1,9},offset:\d{1,18})(;(broker:[^,;:]+,)?(queue|partition):\d{1,9},offset:\d{1,18})*"
_TIMES = ("SQL", "ISO-8601")

_COMMON: tuple[Option, ...] = (
    text("topic", "The topic.", required=True, pattern=_NAME, wanted=_TOPIC_WORDS),
    text("nameserver", "Nameserver; default: the session's.", pattern=r"[^\s:;]+:\d{1,5}(;[^\s:;]+:\d{1,5})*", wanted="host:port"),
    text("access-key", "Who reads and writes; default: MILLSTREAM_ACCESS_KEY of the environment."),
    Option("secret-key", "Their secret, best as ${env:NAME}; default: MILLSTREAM_SECRET_KEY.", pattern=r"(?s).+", wanted="a text", secret=True),
    text("tls", "Speak TLS, and verify servers with the certificates of this file, or with those of the machine (system).", wanted="a path, or system"),
    count("scan.max-rows-per-trigger", "About how many rows a micro-batch reads.", "a number of rows"),
    choice("scan.read-from", "Who is asked first for messages: the master of each broker, or one of its replicas; the master then where no replica has them.", "master", "replica", default="master"),
    choice("scan.cold", "How messages are read that a broker has brought into an object store: by the job's workers from there, or through the broker.", "direct", "broker", default="direct"),
    text("tag", "Tags to read, joined by ||.", default="*"),
    text("consumer.group", "Group whose offsets show how far the job is.", pattern=_NAME, wanted="a legal group name"),
    text("dead-letter.topic", "Where malformed messages go; default: TOPIC_dead_letter.", pattern=_NAME, wanted=_TOPIC_WORDS),
    text("late.topic", "Where rows go that came behind the watermark; default: they are only counted.", pattern=_NAME, wanted=_TOPIC_WORDS),
    text("sink.tag", "Tag of the messages that are written."),
)  # fmt: skip

_FORMAT_OPTIONS: tuple[Option, ...] = (
    flag("json.ignore-parse-errors", "Only count malformed messages.", format="json"),
    flag("json.fail-on-missing-field", "A message without one of the columns is malformed.", format="json"),
    choice("json.timestamp-format.standard", "How times are written.", *_TIMES, default="SQL", format="json"),
    choice("json.map-null-key.mode", "What becomes of NULL keys of a MAP.", "FAIL", "DROP", "LITERAL", default="FAIL", format="json"),
    text("json.map-null-key.literal", "What a NULL key is written as.", default="null", format="json"),
    flag("json.encode.decimal-as-plain-number", "Write decimals without exponents.", format="json"),
    text("csv.field-delimiter", "What stands between fields.", pattern=_CHARACTER, wanted="one character", default=",", format="csv"),
    text("csv.quote-character", "What encloses fields.", pattern=_CHARACTER, wanted="one character", default='"', format="csv"),
    flag("csv.disable-quote-character", "Fields are never enclosed.", format="csv"),
    text("csv.escape-character", "What escapes the next character.", pattern=_CHARACTER, wanted="one character", format="csv"),
    text("csv.null-literal", "What NULL is written as.", pattern="(?s).*", format="csv"),
    text("csv.array-element-delimiter", "What stands between elements of an ARRAY.", default=";", format="csv"),
    flag("csv.allow-comments", "Lines that begin with # are passed over.", format="csv"),
    flag("csv.ignore-parse-errors", "Only count malformed messages.", format="csv"),
    choice("raw.charset", "How text stands in the body.", "UTF-8", default="UTF-8", format="raw"),
    choice("raw.endianness", "How numbers stand in the body.", "big-endian", "little-endian", default="big-endian", format="raw"),
    *(text(f"{name}.schema", "Schema of the messages as JSON, or a file with it; default: what the columns say.", format=name) for name in _AVRO),
    *(flag(f"{name}.timestamp_mapping.legacy", "Whether a TIMESTAMP is an instant in the schema that the columns say, as in Flink before 1.19; else a time without a zone.", "true", format=name) for name in _AVRO),
    *(text(f"{name}.url", "The schema registry.", pattern=r"https?://[^\s?#@]+", wanted="an address such as http://host:8081", format=name) for name in _REGISTERED),
    *(text(f"{name}.subject", "Subject under which a schema that is written is registered; default: TOPIC-value.", format=name) for name in _REGISTERED),
    *(choice(f"{name}.basic-auth.credentials-source", "How the registry is told who asks.", "USER_INFO", default="USER_INFO", format=name) for name in _REGISTERED),
    *(Option(f"{name}.basic-auth.user-info", "Name and password for the registry, joined by :, best as ${env:NAME}.", pattern=r"[^:]+:.*", wanted="name:password", format=name, secret=True) for name in _REGISTERED),
    text("protobuf.descriptor-file", "File with the descriptors, as `protoc --include_imports --descriptor_set_out=FILE` writes it.", wanted="a path", format="protobuf"),
    text("protobuf.message-name", "Full name of the message, as in shop.v1.Order.", pattern=r"[A-Za-z_][\w.]*", wanted="the name of a message", format="protobuf"),
    flag("protobuf.read-default-values", "Fields that are not in a message have the default values of their declaration; else they are NULL.", format="protobuf"),
    text("protobuf.write-null-string-literal", "What NULL is written as among the texts of an ARRAY or MAP.", pattern="(?s).*", default="", format="protobuf"),
    *(flag(f"{name}.ignore-parse-errors", "Only count malformed messages.", format=name) for name in (*_BINARY_FORMATS, "debezium-avro-confluent")),
    flag("debezium-json.schema-include", "Messages bring their schema.", format="debezium-json"),
    *(flag(f"{name}.ignore-parse-errors", "Only count malformed messages.", format=name) for name in _CHANGELOG_FORMATS),
    *(choice(f"{name}.timestamp-format.standard", "How times are written.", *_TIMES, default="SQL", format=name) for name in _CHANGELOG_FORMATS),
    text("canal-json.database.include", "Only changes of databases whose names match the expression.", format="canal-json"),
    text("canal-json.table.include", "Only changes of tables whose names match the expression.", format="canal-json"),
)  # fmt: skip

_STARTUP: tuple[Option, ...] = (
    choice("scan.startup.mode", "Where a job without a checkpoint begins.", "earliest-offset", "latest-offset", "timestamp",
           "group-offsets", "specific-offsets", default="earliest-offset"),
    choice("scan.startup.group-offsets.reset", "Where group-offsets begins in queues in which the group has no offsets: at their start, at their end, or not at all (none ends the job with GROUP_WITHOUT_OFFSETS). The job's progress says it.",
           "earliest", "latest", "none", default="earliest"),
    count("scan.startup.timestamp-millis", "Store time to begin at.", "milliseconds", least=0),
    text("scan.startup.specific-offsets", "Offsets to begin at; queues that are not named begin at their start.", pattern=_OFFSETS,
         wanted="'queue:0,offset:42;queue:1,offset:300', perhaps with broker:NAME, before a queue"),
)  # fmt: skip

_TOLD_AT_ONCE = "the watermark is told with each micro-batch, which all queues and tables share"
_WATERMARKS: tuple[Option, ...] = (
    duration(
        "scan.watermark.idle-timeout",
        "How long a queue of this table may be silent until event time goes on without it, 0 for ever; default: what SET says.",
    ),
    *(
        Option(f"scan.watermark.{name}", "Read and ignored.", ignored=_TOLD_AT_ONCE)
        for name in (
            "emit.strategy", "emit.on-event.gap", "alignment.group", "alignment.max-drift", "alignment.update-interval",
        )
    ),
)  # fmt: skip

_INCLUDE = choice(
    "value.fields-include", "Whether the columns of the key stand in the body too.", "ALL", "EXCEPT_KEY", default="ALL"
)

TOPIC_OPTIONS: tuple[Option, ...] = (
    *_COMMON,
    choice("format", "How rows are written in a message.", *_FORMATS, default="json"),
    *_STARTUP,
    *_WATERMARKS,
    text("sink.key-column", "Column whose value is the message's key."),
    choice("key.format", "How the columns of 'key.fields' stand in the message's key.", "raw", "json", "csv"),
    text("key.fields", "Columns of the message's key, joined by ;."),
    text("key.fields-prefix", "What the names of the key's columns begin with in the table only."),
    _INCLUDE,
    *_FORMAT_OPTIONS,
)  # fmt: skip
"""Those of the connector 'rocketmq'."""

_UPSERT_OPTIONS: tuple[Option, ...] = (
    *_COMMON,
    choice("format", "How rows are written in a message.", *_UPSERT_FORMATS, default="json"),
    choice("key.format", "How the primary key stands in the message's key.", "raw", "json", "csv", default="json"),
    text("key.fields-prefix", "What the names of the key's columns begin with in the table only."),
    _INCLUDE,
    duration("lookup.cache.ttl", "How often a dimension table looks for new messages.", "10 s"),
    *LOOKUP_OPTIONS,
    *_WATERMARKS,
    *(option for option in _FORMAT_OPTIONS if option.format not in (*_CHANGELOG_FORMATS, "debezium-avro-confluent")),
)
"""Those of the connector 'upsert-rocketmq': the last message of a key counts, one without a body deletes it."""

ROCKETMQ = Connector(
    "rocketmq",
    TOPIC_OPTIONS,
    TOPIC_METADATA,
    writable_metadata=_WRITABLE_METADATA,
    reads=True,
    writes=True,
    job_source="millstream.streams.connectors.rocketmq.source:topic_source",
    job_sink="millstream.streams.connectors.rocketmq.sink:topic_sink",
    formats=_FORMATS,
    is_topic=True,
    judges=True,
    dead_letters=True,
    merges=True,
    delimiter_means_csv=True,
)

UPSERT_ROCKETMQ = Connector(
    "upsert-rocketmq",
    _UPSERT_OPTIONS,
    TOPIC_METADATA,
    writable_metadata=tuple(key for key in _WRITABLE_METADATA if key != "keys"),
    reads=True,
    writes=True,
    looks_up=True,
    needs_key=True,
    upserts=True,
    job_source="millstream.streams.connectors.rocketmq.source:topic_source",
    job_sink="millstream.streams.connectors.rocketmq.sink:topic_sink",
    lookup="millstream.streams.connectors.rocketmq.lookup:TopicLookup",
    formats=_UPSERT_FORMATS,
    is_topic=True,
    reads_upserts=True,
)
