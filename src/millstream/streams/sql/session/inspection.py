"""Executes SHOW and DESCRIBE."""

from __future__ import annotations

from millstream.streams.errors import SqlError
from millstream.streams.functions.registry import AGGREGATES, FUNCTIONS, WINDOW_FUNCTIONS
from millstream.streams.sql.binder.resolver import Resolver
from millstream.streams.sql.catalog.catalog import Catalog
from millstream.streams.sql.catalog.listing import (
    COLUMN_HEADS,
    INFO_HEADS,
    TextResult,
    built_in_rows,
    columns_of_table,
    create_catalog_text,
    create_table_text,
    create_view_text,
    function_rows,
    lists,
    matches,
    partition_rows,
)
from millstream.streams.sql.catalog.namespaces import Namespaces
from millstream.streams.sql.syntax.script import Script, did_you_mean
from millstream.streams.sql.syntax.statements import Describe, Show
from millstream.streams.sql.syntax.tables import Path

__all__ = ["Inspection"]


class Inspection:
    """Answers of one catalog to the questions of one script."""

    def __init__(self, script: Script, catalog: Catalog, resolver: Resolver, spaces: Namespaces) -> None:
        self._script = script
        self._catalog = catalog
        self._resolver = resolver
        self._spaces = spaces

    def show(self, statement: Show) -> TextResult:
        """The rows that SHOW asks for."""
        match statement.what, statement.path:
            case "CURRENT CATALOG", _:
                return TextResult("The catalog:", ("current catalog name",), (self._catalog.current[:1],))
            case "CURRENT DATABASE", _:
                return TextResult("The database:", ("current database name",), (self._catalog.current[1:],))
            case "CREATE TABLE", Path() as path:
                full = self._catalog.full_name(path.parts)
                return _lines(create_table_text(full, self._resolver.table(path)))
            case "CREATE VIEW", Path() as path:
                full = self._catalog.full_name(path.parts)
                view = self._catalog.views.get(full)
                if view is None:
                    raise self._resolver.unknown(full, str(path), path.span)
                return _lines(create_view_text(full, view))
            case "COLUMNS", Path() as path:
                rows = tuple(row for row in self._columns(path) if matches(statement, row[0]))
                return TextResult("There are no columns.", COLUMN_HEADS, rows)
            case "PARTITIONS", Path() as path:
                table = self._resolver.table(path).table
                partitions = partition_rows(table, statement.partition, path.span, self._script)
                return TextResult("There are no partitions.", table.partition_keys, partitions)
            case "CREATE CATALOG", Path() as path:
                return _lines(create_catalog_text(path.parts[0], self._spaces.definition(path)))
            case "DATABASES", Path() as path:
                self._spaces.definition(path)
            case _, Path() as path:
                catalog, database = self._spaces.database(path)
                if database not in self._catalog.databases[catalog]:
                    raise self._spaces.no_database((catalog, database), path.span)
        return lists(statement, self._catalog)

    def _columns(self, path: Path) -> tuple[tuple[str, ...], ...]:
        view = self._catalog.views.get(self._catalog.full_name(path.parts))
        if view is not None:
            return columns_of_table(view.node.schema, view)
        found = self._resolver.table(path)
        return columns_of_table(found.table.schema, found)

    def describe(self, statement: Describe) -> TextResult:
        """Columns of a table or view, or what else is described."""
        path = statement.path
        match statement.kind:
            case "CATALOG":
                found = self._spaces.definition(path)
                rows = [("name", path.parts[0]), ("type", found.options["type"]), ("comment", found.comment)]
                if statement.extended:
                    others = sorted((key, value) for key, value in found.options.items() if key != "type")
                    rows += [(f"option:{key}", value) for key, value in others]
                return TextResult(str(path), INFO_HEADS, tuple(rows))
            case "DATABASE":
                catalog, database = self._spaces.database(path)
                if database not in self._catalog.databases[catalog]:
                    raise self._spaces.no_database((catalog, database), path.span)
                names = sorted(self._catalog.names_in(catalog, database, "TABLES"))
                return TextResult(str(path), ("table name",), tuple((name,) for name in names))
            case "FUNCTION":
                return TextResult(str(path), INFO_HEADS, self._function(path, statement.extended))
            case "MODEL":
                model = self._catalog.model(path.parts)
                if model is None:
                    raise self.no_model(path)
                sides = ((model.inputs, "input"), (model.outputs, "output"))
                columns = tuple((field.name, str(field.type), side) for fields, side in sides for field in fields)
                return TextResult(str(path), ("column", "type", "side"), columns)
        return TextResult(str(path), COLUMN_HEADS, self._columns(path))

    def _function(self, path: Path, extended: bool) -> tuple[tuple[str, str], ...]:
        """What is to be known of a function of the user's, or of one that is built in."""
        name = path.parts[-1].upper()
        made = self._catalog.functions.get(self._catalog.full_name(path.parts))
        if made is not None:
            return function_rows(made.function, made.definition, extended=extended)
        built_in = {**FUNCTIONS, **AGGREGATES, **WINDOW_FUNCTIONS}.get(name) if len(path.parts) == 1 else None
        if built_in is None:
            raise self.no_function(path)
        return built_in_rows(built_in, "SCALAR" if name in FUNCTIONS else "AGGREGATE", extended=extended)

    def no_model(self, path: Path) -> SqlError:
        message = f'There is no model "{path}" that was made by CREATE MODEL.'
        hint = did_you_mean(str(path), self._catalog.model_names())
        return self._script.error("SQL_UNKNOWN_NAME", message, path.span, remedy=hint or None)

    def no_function(self, path: Path) -> SqlError:
        message = f'There is no function "{path}".'
        known = [*(name[2] for name in self._catalog.functions), *FUNCTIONS, *AGGREGATES]
        hint = did_you_mean(path.parts[-1], known)
        return self._script.error("SQL_UNKNOWN_NAME", message, path.span, remedy=hint or None)


def _lines(text: str) -> TextResult:
    return TextResult("The statement:", ("statement",), tuple((line,) for line in text.splitlines()))
