"""Connects a table to its search engine."""

from __future__ import annotations

from collections.abc import Callable

from millstream.model.backoff import Backoff
from millstream.streams.connectors.http.caller import MAX_WAIT_S, CallRetries, HttpCaller, HttpServer, authorization
from millstream.streams.connectors.options import milliseconds
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.errors import JobError

__all__ = ["MakeCaller", "retries_of", "server_of"]

MakeCaller = Callable[[HttpServer, CallRetries], HttpCaller]


def server_of(table: ConnectedTable) -> HttpServer:
    """The hosts of the table, and who asks them. Raises JobError JOB_FAILED where that is said in two ways."""
    options = table.options
    headers = {}
    if "username" in options and "api-key" in options:
        words = f"The table {table.name} says in two ways who asks."
        raise JobError("JOB_FAILED", words, remedy="Keep one of 'username' and 'api-key'.")
    if "username" in options:
        headers["Authorization"] = authorization(options["username"], options.get("password", ""))
    elif "api-key" in options:
        headers["Authorization"] = f"ApiKey {options['api-key']}"
    prefix = options.get("connection.path-prefix", "").rstrip("/")
    addresses = tuple(f"{host.rstrip('/')}{prefix}" for host in options["hosts"].split(";"))
    timeout_s = milliseconds(options["connection.request-timeout"]) / 1000
    return HttpServer(addresses, headers, timeout_s, options.get("tls.ca-file", ""))


def retries_of(table: ConnectedTable) -> CallRetries:
    """How often a busy server is asked again."""
    options = table.options
    strategy = options["sink.bulk-flush.backoff.strategy"].upper()
    count = 0 if strategy == "DISABLED" else table.number("sink.bulk-flush.backoff.max-retries")
    first_s = milliseconds(options["sink.bulk-flush.backoff.delay"]) / 1000
    if strategy == "CONSTANT":
        return CallRetries(count, Backoff(first_s, MAX_WAIT_S, multiplier=1, jitter=0))
    return CallRetries(count, Backoff(first_s, MAX_WAIT_S))
