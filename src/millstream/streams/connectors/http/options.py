"""The connector `http`: rows are sent to a URL."""

from __future__ import annotations

from typing import Final

from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.options import (
    DEAD_LETTER_OPTIONS,
    Option,
    choice,
    count,
    duration,
    secret,
    size,
    text,
)

__all__ = ["CREDENTIAL_OPTIONS", "HEADER", "HTTP"]

HEADER: Final = "header."
"""What the options begin with that are headers."""

_URL = r"https?://[^\s/?#@]+([/?][^\s#]*)?"
_URL_WORDS = "an address such as https://host:port/path, without a user in it"

CREDENTIAL_OPTIONS: tuple[Option, ...] = (
    text("username", "Who sends."),
    secret("password", "Their password, best as ${env:NAME}."),
    text("tls.ca-file", "Certificates that servers are verified with; default: what the machine trusts.", wanted="a path"),
)  # fmt: skip
"""Who calls, and whom they trust."""

_OPTIONS: tuple[Option, ...] = (
    text("url", "Where rows are sent.", required=True, pattern=_URL, wanted=_URL_WORDS),
    choice("method", "How they are sent.", "POST", "PUT", default="POST"),
    choice("body", "What a request holds: one row, an array of rows, or a row a line.", "row", "array", "lines", default="row"),
    Option("header.#", "A header of every request, by its name; best as ${env:NAME} where it is a secret.", pattern=r"[^\r\n]*", wanted="a line", secret=True, free_name=True),
    secret("token", "Token of the header Authorization: Bearer, best as ${env:NAME}."),
    *CREDENTIAL_OPTIONS,
    count("sink.request.max-rows", "Rows of a request at most.", "a number of rows", default="500"),
    size("sink.request.max-size", "Bytes of the rows of a request at most; one larger row is sent alone.", "1 MB"),
    duration("sink.request.timeout", "How long an answer may take.", "30 s"),
    count("sink.max-retries", "How often a request is sent again while the server is busy or away.", "a number of times", least=0, default="5"),
    duration("sink.retry.delay", "Wait before the first repetition, twice as long before each further one; Retry-After goes before it.", "1 s"),
    choice("json.timestamp-format.standard", "How times are written.", "SQL", "ISO-8601", default="SQL"),
    *DEAD_LETTER_OPTIONS,
)  # fmt: skip

HTTP = Connector("http", _OPTIONS, writes=True, sink="millstream.streams.connectors.http.sink:HttpSink")
