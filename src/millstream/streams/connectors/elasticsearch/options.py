"""The connector `elasticsearch`: indices of Elasticsearch or OpenSearch, as source and sink."""

from __future__ import annotations

from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.http.options import CREDENTIAL_OPTIONS
from millstream.streams.connectors.options import (
    DEAD_LETTER_OPTIONS,
    Option,
    choice,
    count,
    duration,
    flag,
    secret,
    size,
    text,
)
from millstream.streams.plan.types import STRING, DataType

__all__ = ["ELASTICSEARCH"]

_METADATA: dict[str, DataType] = {"id": STRING, "index": STRING}
"""What a document says beside its source."""

_HOSTS = r"https?://[^\s/;@]+(;https?://[^\s/;@]+)*"
_INDEX = r"[^\s\"\\/*?<>|,#{}]*(\{[^{}]+\}[^\s\"\\/*?<>|,#{}]*)+|[^\s\"\\/<>|#{}]+"
_NEVER_WAITS = "rows are written at the end of each micro-batch"

_OPTIONS: tuple[Option, ...] = (
    text("hosts", "Servers, joined by ;.", required=True, pattern=_HOSTS, wanted="addresses such as http://host:9200, joined by ;"),
    text("index", "The index; written ones may be named by a column: 'logs-{ts|yyyy-MM-dd}', read ones by a pattern: 'logs-*'.", required=True, pattern=_INDEX, wanted="the name of an index, in small letters"),
    text("document-id.key-delimiter", "What joins the columns of the primary key to a document's id.", default="_"),
    *CREDENTIAL_OPTIONS,
    secret("api-key", "Key of the header Authorization: ApiKey, best as ${env:NAME}."),
    text("connection.path-prefix", "What stands before every path.", pattern=r"/[^\s?#]*", wanted="a path such as /search"),
    duration("connection.request-timeout", "How long an answer may take.", "30 s"),
    choice("failure-handler", "What becomes of a document that is refused for good, where no topic takes it.", "fail", "ignore", "retry-rejected", default="fail"),
    count("sink.bulk-flush.max-actions", "Documents of a request at most; 0: no limit.", "a number of documents", least=0, default="1000"),
    size("sink.bulk-flush.max-size", "Bytes of a request at most; one larger document is sent alone.", "2 MB"),
    choice("sink.bulk-flush.backoff.strategy", "How waits between repetitions grow.", "DISABLED", "CONSTANT", "EXPONENTIAL", default="EXPONENTIAL"),
    count("sink.bulk-flush.backoff.max-retries", "How often what a busy server did not take is sent again.", "a number of times", least=0, default="8"),
    duration("sink.bulk-flush.backoff.delay", "The first wait.", "50 ms"),
    choice("json.timestamp-format.standard", "How times are written.", "SQL", "ISO-8601", default="ISO-8601"),
    *DEAD_LETTER_OPTIONS,
    text("query", "Query DSL as JSON; only the documents that fit are read.", pattern=r"(?s)\s*\{.*\}\s*", wanted="a JSON object", default='{"match_all":{}}'),
    count("scan.fetch-size", "Documents that are fetched at once; servers refuse more than 10000.", "a number of documents", default="1000"),
    count("scan.slices", "Tasks that read at once.", "a number of tasks", default="1"),
    duration("scan.keep-alive", "How long the server keeps a scroll between two fetches.", "5 min"),
    flag("json.ignore-parse-errors", "Pass over documents that do not fit the columns; else they end the job."),
    *(
        Option(name, "Read and ignored.", ignored=_NEVER_WAITS)
        for name in ("sink.bulk-flush.interval", "sink.flush-on-checkpoint")
    ),
    *(
        Option(name, "Read and ignored.", ignored="one request is under way at a time, which has its own timeout")
        for name in ("document-type", "connection.timeout", "socket.timeout", "connection.max-retry-timeout")
    ),
)  # fmt: skip

_CODE = "millstream.streams.connectors.elasticsearch"

ELASTICSEARCH = Connector(
    "elasticsearch",
    _OPTIONS,
    _METADATA,
    reads=True,
    writes=True,
    bounded=True,
    upserts=True,
    source=f"{_CODE}.source:SearchSource",
    sink=f"{_CODE}.sink:SearchSink",
)
