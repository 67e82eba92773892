"""Resolves queries and INSERTs of a script against a catalog, and binds the plan.

The columns of a query that is shown: intervals as the texts that Flink writes for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.streams.connectors.options import milliseconds
from millstream.streams.connectors.registry import CONNECTORS
from millstream.streams.errors import SqlError
from millstream.streams.optimizer.local_time_zones import read_in_zone
from millstream.streams.optimizer.passes import rewrite_query
from millstream.streams.plan.expressions import Column, Expression
from millstream.streams.plan.nodes import Node, Project, Scan, Sink
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import STRING, DataType, TypeKind
from millstream.streams.plan.windows import Emit
from millstream.streams.sql.binder.inserts import bind_insert, with_emit
from millstream.streams.sql.binder.queries import bind_select
from millstream.streams.sql.binder.query_context import with_options
from millstream.streams.sql.binder.relations import project
from millstream.streams.sql.binder.scalars import convert_type
from millstream.streams.sql.catalog.catalog import Catalog, CatalogTable, FullName
from millstream.streams.sql.parser.names import path_text, split_path
from millstream.streams.sql.syntax.queries import QueryTree
from millstream.streams.sql.syntax.script import Script, Span, did_you_mean
from millstream.streams.sql.syntax.statements import Insert
from millstream.streams.sql.syntax.tables import Path

__all__ = ["Resolver", "with_intervals_as_text"]

_INTERVALS = (TypeKind.INTERVAL_DAY, TypeKind.INTERVAL_YEAR)


def with_intervals_as_text(node: Node) -> Node:
    """The node with a STRING for each INTERVAL, also in arrays, maps and rows: `+1-02`, `+1 02:03:04.500`."""
    fields = node.schema.fields
    if all(_text_type(field.type) == field.type for field in fields):
        return node
    below: Node = node
    columns: tuple[tuple[str, Expression], ...] = tuple((of.name, Column(of.name, of.type)) for of in fields)
    if isinstance(node, Project):
        below, columns = node.input, node.columns
    return project(below, ((name, convert_type(value, _text_type(value.type))) for name, value in columns))


def _text_type(data_type: DataType) -> DataType:
    if data_type.kind in _INTERVALS:
        return STRING.as_nullable(data_type.nullable)
    elements = tuple(map(_text_type, data_type.elements))
    fields = tuple(replace(field, type=_text_type(field.type)) for field in data_type.fields)
    return replace(data_type, elements=elements, fields=fields)


class Resolver:
    """What the tables and views of one catalog are to one script."""

    def __init__(self, script: Script, catalog: Catalog, settings: Mapping[str, str]) -> None:
        self._script = script
        self._catalog = catalog
        self._settings = settings

    def query(self, query: QueryTree) -> Node:
        """The plan of a query that is shown, narrowed to what it reads."""
        node = self._with_emission(self.bind_query(query), None)
        return rewrite_query(with_intervals_as_text(node), self._zone())

    def bind_query(self, query: QueryTree) -> Node:
        """The plan of a query as it stands."""
        return self._bind(query)

    def view(self, query: QueryTree) -> Node:
        """The plan of a view's query, of which some things are only decided by the query over it."""
        return self._bind(query, is_view=True)

    def _bind(self, query: QueryTree, *, is_view: bool = False) -> Node:
        full, streaming = self._catalog.full_name, self._streaming()
        return bind_select(query, self._script, self.rows_of, full, is_view=is_view, streaming=streaming)

    def insert(self, insert: Insert) -> Sink:
        """The sink of an INSERT with the plan of its query."""
        table = self._apply_hints(insert, self.table(insert.path).table)
        node = self.bind_query(insert.query)
        emitting = self._with_emission(node, insert.emit)
        if insert.emit is not None and emitting == node:
            message = "EMIT finds no window whose rows may change before or after its end."
            remedy = "It is for tumbling, hopping and cumulating windows that no other window, OVER or pattern reads."
            raise self._script.error("SQL_UNSUPPORTED", message, insert.span, remedy=remedy)
        return self.bind_sink(insert, table, emitting)

    def _apply_hints(self, insert: Insert, table: Table) -> Table:
        """The table with the options that a hint behind its name gives."""
        return with_options(Scan(table, ()), insert.hints, self._script).table if insert.hints else table

    def bind_sink(self, insert: Insert, table: Table, node: Node) -> Sink:
        """The sink of an INSERT whose query is bound, with times in the job's zone."""
        sink = bind_insert(insert, table, node, self._settings, self._script)
        return replace(sink, input=read_in_zone(sink.input, self._zone()))

    def rows_of(self, name: str, span: Span) -> Node:
        """The rows of a table or view. Raises SQL_UNKNOWN_TABLE at the span."""
        full = self._catalog.full_name(split_path(name))
        view = self._catalog.views.get(full)
        if view is not None:
            return view.node
        table = self._table(full, name, span).table
        if not CONNECTORS[table.connector].reads:
            message = f'The table "{name}" cannot be read: its connector is {table.connector}.'
            raise self._script.error("SQL_UNSUPPORTED", message, span)
        return Scan(table, table.schema.names)

    def table(self, path: Path) -> CatalogTable:
        """A table that is written or changed; a view is none."""
        full = self._catalog.full_name(path.parts)
        if full in self._catalog.views:
            message = f'"{path}" is a view and cannot be written or changed so.'
            raise self._script.error("SQL_UNSUPPORTED", message, path.span)
        return self._table(full, path_text(path.parts), path.span)

    def _table(self, full: FullName, name: str, span: Span) -> CatalogTable:
        table = self._catalog.tables.get(full)
        if table is None:
            raise self.unknown(full, name, span)
        return table

    def unknown(self, full: FullName, name: str, span: Span) -> SqlError:
        """The error for a name that is neither a table nor a view."""
        message = f'There is no table or view "{name}".'
        if not self._catalog.has_database(full):
            message = f'There is no table or view "{name}": there is no database "{full[0]}.{full[1]}".'
        hint = did_you_mean(name, self._catalog.known_names())
        return self._script.error("SQL_UNKNOWN_TABLE", message, span, remedy=hint or None)

    def _with_emission(self, node: Node, emit: Emit | None) -> Node:
        """Windows speak as EMIT says, else as the settings do."""
        emission = emit or self._emission_of_settings()
        return node if emission is None else with_emit(node, emission)

    def _streaming(self) -> bool:
        return self._settings.get("execution.runtime-mode", "streaming").lower() == "streaming"

    def _zone(self) -> str:
        return self._settings.get("table.local-time-zone", "UTC")

    def _emission_of_settings(self) -> Emit | None:
        early = self._delay_ms("early")
        late = self._delay_ms("late")
        lateness = milliseconds(self._settings.get("table.exec.emit.allow-lateness", "0"))
        return Emit(early, late, lateness) if (early, late, lateness) != (None, None, 0) else None

    def _delay_ms(self, side: str) -> int | None:
        enabled = self._settings.get(f"table.exec.emit.{side}-fire.enabled", "false").lower() == "true"
        delay = self._settings.get(f"table.exec.emit.{side}-fire.delay", "0")
        return milliseconds(delay) if enabled else None
