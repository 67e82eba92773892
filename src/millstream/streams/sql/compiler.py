"""Scripts to plans: the session that keeps tables, views and settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.streams.errors import SqlError
from millstream.streams.functions.casting import same_shape
from millstream.streams.functions.registry import AGGREGATES, FUNCTIONS
from millstream.streams.plan.expressions import Column
from millstream.streams.plan.nodes import JobPlan, Node, Project, QueryPlan, Scan, Sink
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.sql.connectors import CONNECTORS
from millstream.streams.sql.explain import explain_node, explain_sink
from millstream.streams.sql.pruning import prune
from millstream.streams.sql.queries import bind_select
from millstream.streams.sql.scalars import converted, nearest
from millstream.streams.sql.script import Script, Span
from millstream.streams.sql.settings import SETTINGS, SettingProblem, check_setting
from millstream.streams.sql.statement_parser import parse_script, too_deep
from millstream.streams.sql.syntax import (
    CreateTable,
    CreateView,
    Describe,
    Drop,
    Explain,
    Insert,
    Query,
    Reset,
    Select,
    SetOption,
    Show,
    StarTerm,
    Statement,
    StatementSet,
)
from millstream.streams.sql.tables import bind_table

__all__ = ["Command", "SqlSession", "TextResult"]


@dataclass(frozen=True, slots=True)
class TextResult:
    """What a statement says: a title, and rows under columns where it lists something."""

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


Command = JobPlan | QueryPlan | TextResult


@dataclass
class _State:
    tables: dict[str, Table] = field(default_factory=dict)
    views: dict[str, Node] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(dict(self.tables), dict(self.views), dict(self.settings))


class SqlSession:
    """Compiles scripts; tables, views and settings stay from one script to the next."""

    def __init__(self, *, nameserver: str = "") -> None:
        self._state = _State(settings={"millstream.nameserver": nameserver} if nameserver else {})
        self._defaults = dict(self._state.settings)

    def compile(self, text: str) -> list[Command]:
        """One command per statement of the script. Raises SqlError, and nothing of the script has taken effect then."""
        script = Script(text)
        state = self._state.copy()
        statements = parse_script(script)
        if not statements:
            raise script.error("SQL_SCRIPT", "The script has no statement.", Span(0, 1))
        compilation = _Compilation(script, state, self._defaults)
        commands = []
        for start, statement in statements:
            try:
                commands.append(compilation.command(statement))
            except RecursionError:
                raise too_deep(script, start) from None
        self._state = state
        return commands


class _Compilation:
    """One script against the tables, views and settings so far."""

    def __init__(self, script: Script, state: _State, defaults: dict[str, str]) -> None:
        self._script = script
        self._state = state
        self._defaults = defaults

    def command(self, statement: Statement) -> Command:
        match statement:
            case CreateTable():
                return self._create_table(statement)
            case CreateView():
                return self._create_view(statement)
            case Insert():
                return JobPlan((self._insert(statement),), self._settings())
            case StatementSet(inserts=inserts):
                return JobPlan(tuple(self._insert(insert) for insert in inserts), self._settings())
            case Query(select=select):
                return QueryPlan(self._query(select), self._settings())
            case Explain():
                return self._explain(statement)
            case SetOption() | Reset():
                return self._set(statement)
            case Show(what=what):
                return self._show(what)
            case Describe():
                return self._describe(statement)
            case Drop():
                return self._drop(statement)

    def _settings(self) -> dict[str, str]:
        return dict(self._state.settings)

    def _create_table(self, statement: CreateTable) -> TextResult:
        if self._is_taken(statement.name, statement.if_not_exists, statement.span):
            return TextResult(f"{statement.name} exists already.")
        self._state.tables[statement.name] = bind_table(statement, self._script)
        return TextResult(f"Table {statement.name} is created.")

    def _create_view(self, statement: CreateView) -> TextResult:
        if self._is_taken(statement.name, statement.if_not_exists, statement.span):
            return TextResult(f"{statement.name} exists already.")
        node = bind_select(statement.query, self._script, self._rows_of)
        if statement.columns:
            node = self._renamed(node, statement)
        self._state.views[statement.name] = node
        return TextResult(f"View {statement.name} is created.")

    def _renamed(self, node: Node, statement: CreateView) -> Node:
        fields = node.schema.fields
        if len(fields) != len(statement.columns) or len(set(statement.columns)) != len(fields):
            message = f"The view names {len(statement.columns)} different columns, but its query has {len(fields)}."
            raise self._script.error("SQL_SYNTAX", message, statement.span)
        pairs = tuple(zip(statement.columns, fields, strict=True))
        columns = tuple((name, Column(of.name, of.type)) for name, of in pairs)
        return Project(node, columns, frozenset(name for name, of in pairs if of.rowtime))

    def _is_taken(self, name: str, if_not_exists: bool, span: Span) -> bool:
        if name not in self._state.tables and name not in self._state.views:
            return False
        if not if_not_exists:
            raise self._script.error("SQL_TABLE_EXISTS", f'There is a table or view "{name}" already.', span)
        return True

    def _rows_of(self, name: str, span: Span) -> Node:
        if name in self._state.views:
            return self._state.views[name]
        table = self._table(name, span)
        if not CONNECTORS[table.connector].reads:
            message = f'The table "{name}" cannot be read: its connector is {table.connector}.'
            raise self._script.error("SQL_UNSUPPORTED", message, span)
        return Scan(table, table.schema.names)

    def _table(self, name: str, span: Span) -> Table:
        table = self._state.tables.get(name)
        if table is None:
            hint = nearest(name, [*self._state.tables, *self._state.views])
            raise self._script.error(
                "SQL_UNKNOWN_TABLE", f'There is no table or view "{name}".', span, remedy=hint or None
            )
        return table

    def _query(self, select: Select) -> Node:
        return prune(bind_select(select, self._script, self._rows_of))

    def _insert(self, insert: Insert) -> Sink:
        if insert.table in self._state.views:
            raise self._script.error(
                "SQL_UNSUPPORTED", f'"{insert.table}" is a view and cannot be written.', insert.span
            )
        table = self._table(insert.table, insert.span)
        node = bind_select(insert.query, self._script, self._rows_of)
        given = node.schema.fields
        wanted = self._targets(insert, table)
        if len(given) != len(wanted):
            targets = ", ".join(name for name, _ in wanted)
            message = f'The query has {len(given)} columns, but "{table.name}" takes {len(wanted)}: {targets}.'
            raise self._script.error("SQL_TYPE", message, insert.query.span)
        columns = []
        for place, ((name, data_type), source) in enumerate(zip(wanted, given, strict=True)):
            self._check_fit(name, data_type, source.type, insert, place)
            columns.append((name, converted(Column(source.name, source.type), data_type)))
        order = {column.name: place for place, column in enumerate(table.writable)}
        columns.sort(key=lambda column: order[column[0]])
        return Sink(table, prune(Project(node, tuple(columns))))

    def _targets(self, insert: Insert, table: Table) -> list[tuple[str, DataType]]:
        writable = {column.name: column.type for column in table.writable}
        if not insert.columns:
            return list(writable.items())
        for name in insert.columns:
            if name.parts[0] not in writable:
                hint = nearest(name.parts[0], list(writable))
                message = f'"{table.name}" has no column "{name.parts[0]}" to write.'
                raise self._script.error("SQL_UNKNOWN_COLUMN", message, name.span, remedy=hint or None)
        if len({name.parts[0] for name in insert.columns}) != len(writable):
            message = f'Name each column of "{table.name}" once: {", ".join(writable)}.'
            raise self._script.error("SQL_UNSUPPORTED", message, insert.columns[0].span)
        return [(name.parts[0], writable[name.parts[0]]) for name in insert.columns]

    def _check_fit(self, name: str, wanted: DataType, given: DataType, insert: Insert, place: int) -> None:
        """What Flink casts by itself on the way into a sink: numbers among numbers, times among times, NULL."""
        fits = (
            same_shape(given, wanted)
            or given.kind is TypeKind.NULL
            or (given.is_number and wanted.is_number)
            or (given.is_timestamp and wanted.is_timestamp)
        )
        if not fits:
            items = insert.query.items
            # A * before the place shifts the items; then the whole query is shown.
            starred = any(isinstance(item.value, StarTerm) for item in items)
            span = insert.query.span if starred else items[place].value.span
            message = f'"{name}" of "{insert.table}" is {wanted}, but the query gives {given}.'
            raise self._script.error("SQL_TYPE", message, span, remedy=f"Use CAST(... AS {wanted.as_nullable()}).")

    def _explain(self, statement: Explain) -> TextResult:
        match statement.statement:
            case Insert() as insert:
                lines = explain_sink(self._insert(insert))
            case Query(select=select):
                lines = explain_node(self._query(select))
            case StatementSet(inserts=inserts):
                lines = [line for insert in inserts for line in explain_sink(self._insert(insert))]
        return TextResult("The plan:", ("plan",), tuple((line,) for line in lines))

    def _set(self, statement: SetOption | Reset) -> TextResult:
        settings = self._state.settings
        if isinstance(statement, Reset):
            if statement.key is None:
                settings.clear()
                settings.update(self._defaults)
                return TextResult("All settings have their defaults.")
            if statement.key not in SETTINGS:
                self._check_setting(statement.key, "", statement.span)
            settings.pop(statement.key, None)
            settings.update({key: value for key, value in self._defaults.items() if key == statement.key})
            return TextResult(f"{statement.key} has its default.")
        if statement.key is None:
            rows = tuple((name, settings.get(name, setting.default)) for name, setting in SETTINGS.items())
            return TextResult("Settings:", ("setting", "value"), rows)
        self._check_setting(statement.key, statement.value, statement.span)
        settings[statement.key] = statement.value
        return TextResult(f"{statement.key} is {statement.value}.")

    def _check_setting(self, name: str, value: str, span: Span) -> None:
        try:
            check_setting(name, value)
        except SettingProblem as problem:
            raise self._script.error(problem.name, problem.message, span, remedy=problem.remedy) from None

    def _show(self, what: str) -> TextResult:
        names = {
            "TABLES": [*self._state.tables, *self._state.views],
            "VIEWS": list(self._state.views),
            "FUNCTIONS": [*FUNCTIONS, *AGGREGATES],
        }[what]
        rows = tuple((name,) for name in sorted(names))
        return TextResult(f"There are no {what.lower()}.", (what.lower().removesuffix("s"),), rows)

    def _describe(self, statement: Describe) -> TextResult:
        view = self._state.views.get(statement.name)
        schema = view.schema if view is not None else self._table(statement.name, statement.span).schema
        rows = tuple((of.name, str(of.type), "event time" if of.rowtime else "") for of in schema.fields)
        return TextResult(statement.name, ("column", "type", "note"), rows)

    def _drop(self, statement: Drop) -> TextResult:
        kept = self._state.tables if statement.kind == "TABLE" else self._state.views
        if statement.name in kept:
            del kept[statement.name]
            return TextResult(f"{statement.name} is dropped.")
        if statement.if_exists:
            return TextResult(f"There is no {statement.kind.lower()} {statement.name}.")
        raise self._unknown(statement)

    def _unknown(self, statement: Drop) -> SqlError:
        message = f'There is no {statement.kind.lower()} "{statement.name}".'
        return self._script.error("SQL_UNKNOWN_TABLE", message, statement.span)
