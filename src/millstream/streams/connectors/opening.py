"""Loads the code of a connector for a table's declaration."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, cast

from millstream.model.errors import MillstreamError
from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.options import from_environment
from millstream.streams.connectors.protocols import SinkConnector, SourceConnector
from millstream.streams.connectors.table import ConnectedColumn, ConnectedTable
from millstream.streams.errors import JobError
from millstream.streams.plan.tables import ComputedColumn, MetadataColumn, Table
from millstream.streams.plan.types import DataType

__all__ = ["code_of", "connected_table", "opened_sink", "opened_source"]


def connected_table(
    table: Table, connector: Connector, nameserver: str, columns: Mapping[str, DataType] | None = None
) -> ConnectedTable:
    """The table with those columns, or with all that an INSERT fills. Raises JobError for a secret that is not set."""
    stored = [column for column in table.columns if not isinstance(column, ComputedColumn)]
    written = {column.name for column in table.writable}
    chosen = [column for column in stored if column.name in (written if columns is None else columns)]
    try:
        options = {name: from_environment(value) for name, value in table.options.items()}
    except KeyError as missing:
        words = f"The environment has no {missing.args[0]}, which an option of the table {table.name} names."
        raise JobError("JOB_FAILED", words, remedy=f"Set it before the start: export {missing.args[0]}=...") from None
    return ConnectedTable(
        table.name,
        tuple(ConnectedColumn(of.name, of.type, of.key if isinstance(of, MetadataColumn) else None) for of in chosen),
        {**connector.defaults(), **options},
        table.primary_key,
        nameserver,
        tuple(options),
        tuple(ConnectedColumn(column.name, column.type) for column in table.physical),
        table.partition_keys,
    )


def opened_source(connector: Connector, table: ConnectedTable) -> SourceConnector:
    """The source of a table. Raises JobError JOB_FAILED for what its code refuses."""
    return cast("SourceConnector", _make(connector, connector.source, table, "JOB_FAILED"))


def opened_sink(connector: Connector, table: ConnectedTable) -> SinkConnector:
    """The sink of a table. Raises JobError SINK_FAILED for what its code refuses."""
    return cast("SinkConnector", _make(connector, connector.sink, table, "SINK_FAILED"))


def code_of(place: str) -> Any:
    """What 'module:name' names. Raises what its import raises."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _make(connector: Connector, place: str, table: ConnectedTable, failure: str) -> object:
    try:
        make: Callable[[ConnectedTable], Any] = code_of(place)
        made: object = make(table)
    except MillstreamError:
        raise
    except Exception as error:
        words = f"The connector {connector.name!r} of the table {table.name} cannot be opened ({place}): "
        raise JobError(failure, f"{words}{type(error).__name__}: {error}") from error
    return made
