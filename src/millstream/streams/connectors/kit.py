"""The contract of connectors as checks for their authors, to be called from any test framework.

Each raises `ContractBroken`, an AssertionError, with what is wrong in words.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.opening import opened_sink, opened_source
from millstream.streams.connectors.protocols import Offsets, SinkBatch, SinkTask, SourceConnector, SourcePartition
from millstream.streams.connectors.table import ConnectedColumn, ConnectedTable
from millstream.streams.plan.types import DataType

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ContractBroken", "check_declaration", "check_sink", "check_source", "table_of"]

_JOB = "0123456789ab-0"

Rows = Sequence[Mapping[str, Any]]


class ContractBroken(AssertionError):
    """A connector does not do what the protocols promise."""


def table_of(
    connector: Connector,
    columns: Mapping[str, DataType],
    options: Mapping[str, str],
    *,
    name: str = "t",
    primary_key: tuple[str, ...] = (),
    nameserver: str = "",
) -> ConnectedTable:
    """A table as a job would hand it to the connector. Raises ContractBroken for an option that it does not declare."""
    for key, value in options.items():
        option = connector.find(key)
        _require(option is not None, f"{connector.name} declares no option '{key}'")
        problem = None if option is None else option.problem(value)
        _require(problem is None, f"'{key}' = '{value}' is refused: it is {problem}")
    declared = tuple(ConnectedColumn(column, kind) for column, kind in columns.items())
    return ConnectedTable(name, declared, {**connector.defaults(), **options}, primary_key, nameserver)


def check_declaration(connector: Connector) -> None:
    """Every option is described and has a legal default, its name is used once, and something can be done with it."""
    names = [option.name for option in connector.options]
    _require(len(names) == len(set(names)), f"an option of {connector.name} is declared twice: {sorted(names)}")
    sources, sinks = (connector.source, connector.job_source), (connector.sink, connector.job_sink)
    _require(any((*sources, *sinks)), f"{connector.name} names neither a source nor a sink")
    _require(not (all(sources) or all(sinks)), f"{connector.name} names two sources or two sinks")
    _require(connector.reads == any(sources), f"{connector.name}: 'reads' and 'source' do not agree")
    _require(connector.writes == any(sinks), f"{connector.name}: 'writes' and 'sink' do not agree")
    _require(connector.looks_up == bool(connector.lookup), f"{connector.name}: 'looks_up' and 'lookup' do not agree")
    for option in connector.options:
        _require(option.description.endswith("."), f"'{option.name}' is described by no sentence")
        if option.default is not None:
            _require(option.problem(option.default) is None, f"the default of '{option.name}' is not legal")


def check_source(connector: Connector, table: ConnectedTable, expected: Rows) -> None:
    """The table gives `expected`, in any order; a partition that is read again, or elsewhere, gives the same rows."""
    source = opened_source(connector, table)
    first, latest = source.first(), source.latest()
    for queue, end in latest.items():
        _require(first.get(queue, 0) <= end, f"the queue {queue} ends at {end}, before its beginning")
    parts = source.partitions(first, latest)
    _require(list(parts) == list(source.partitions(first, latest)), "the same offsets give other partitions")
    elsewhere = opened_source(connector, pickle.loads(pickle.dumps(table)))
    found: list[Mapping[str, Any]] = []
    for part in parts:
        copied = pickle.loads(pickle.dumps(part))
        _require(copied == part, f"{part} is another one after a pickle")
        rows = _rows(source, part)
        _require(rows == _rows(elsewhere, copied), f"{part} gives other rows where it is read again")
        found += rows
    _same_rows(found, expected, "the table")
    _check_cuts(source, first, latest, expected)


def check_sink(
    connector: Connector,
    table: ConnectedTable,
    rows: pa.RecordBatch,
    read: Callable[[], Rows],
    expected: Rows,
    *,
    exactly_once: bool = True,
) -> None:
    """After a commit `read` gives `expected`; a second commit, and a replay of the whole micro-batch, add nothing.

    Without `exactly_once` a replay may add the rows again, but nothing else.
    """
    before = len(read())
    sink, batch = opened_sink(connector, table), SinkBatch(_JOB, 7)
    messages = [_write_elsewhere(connector, table, rows)]
    sink.commit(batch, messages)
    _same_rows(read()[before:], expected, "after the commit the table")
    sink.commit(batch, messages)
    _same_rows(read()[before:], expected, "after a second commit the table")
    opened_sink(connector, table).commit(batch, [_write_elsewhere(connector, table, rows)])
    again = read()[before:]
    if exactly_once:
        _same_rows(again, expected, "after a replay the table")
    else:
        distinct = {repr(dict(row)) for row in expected}
        _require({repr(dict(row)) for row in again} == distinct, "after a replay there are other rows")


def _write_elsewhere(connector: Connector, table: ConnectedTable, rows: pa.RecordBatch) -> bytes:
    """What a writer in another process leaves for the commit."""
    writer = opened_sink(connector, pickle.loads(pickle.dumps(table))).writer(SinkTask(_JOB, 7, 0))
    writer.write(rows)
    message = writer.finish()
    _require(isinstance(message, bytes), f"finish gives {type(message).__name__}, not bytes")
    return message


def _check_cuts(source: SourceConnector, first: Offsets, latest: Offsets, expected: Rows) -> None:
    """Two micro-batches give what one gives."""
    middle = {queue: (first.get(queue, 0) + end) // 2 for queue, end in latest.items()}
    parts = [*source.partitions(first, middle), *source.partitions(middle, latest)]
    found = [row for part in parts for row in _rows(source, part)]
    _same_rows(found, expected, "cut into two micro-batches the table")


def _rows(source: SourceConnector, part: SourcePartition) -> list[Mapping[str, Any]]:
    return [row for batch in source.read(part) for row in batch.to_pylist()]


def _same_rows(found: Rows, expected: Rows, where: str) -> None:
    ours, theirs = (sorted(repr(sorted(row.items())) for row in rows) for rows in (found, expected))
    _require(ours == theirs, f"{where} has {len(ours)} rows {ours[:3]}..., not {len(theirs)} {theirs[:3]}...")


def _require(holds: bool, words: str) -> None:
    if not holds:
        raise ContractBroken(words)
