"""SHOW and DESCRIBE: what a catalog holds."""

from __future__ import annotations

from millstream.streams.errors import SqlError
from millstream.streams.sql.catalog import Catalog
from millstream.streams.sql.listing import (
    TextResult,
    columns_of_table,
    create_table_text,
    create_view_text,
    lists,
    matches,
)
from millstream.streams.sql.resolver import Resolver
from millstream.streams.sql.scalars import nearest
from millstream.streams.sql.script import Script
from millstream.streams.sql.spaces import Spaces
from millstream.streams.sql.statements import Describe, Show
from millstream.streams.sql.table_syntax import Path

__all__ = ["Inspection"]


class Inspection:
    """Answers of one catalog to the questions of one script."""

    def __init__(self, script: Script, catalog: Catalog, resolver: Resolver, spaces: Spaces) -> None:
        self._script = script
        self._catalog = catalog
        self._resolver = resolver
        self._spaces = spaces

    def show(self, statement: Show) -> TextResult:
        """The rows that SHOW asks for."""
        match statement.what, statement.path:
            case "CURRENT CATALOG", _:
                return TextResult("The catalog:", ("catalog",), (self._catalog.current[:1],))
            case "CURRENT DATABASE", _:
                return TextResult("The database:", ("database",), (self._catalog.current[1:],))
            case "CREATE TABLE", Path() as path:
                full = self._catalog.full(path.parts)
                return _lines(create_table_text(full, self._resolver.table(path)))
            case "CREATE VIEW", Path() as path:
                full = self._catalog.full(path.parts)
                view = self._catalog.views.get(full)
                if view is None:
                    raise self._resolver.unknown(full, str(path), path.span)
                return _lines(create_view_text(full, view))
            case "COLUMNS", Path() as path:
                rows = tuple(row for row in self._columns(path) if matches(statement, row[0]))
                return TextResult("There are no columns.", ("column", "type", "note"), rows)
            case "DATABASES", Path() as path:
                if path.parts[0] not in self._catalog.databases:
                    raise self._spaces.no_catalog(path.parts[0], path.span)
            case _, Path() as path:
                catalog, database = self._spaces.database(path)
                if database not in self._catalog.databases[catalog]:
                    raise self._spaces.no_database((catalog, database), path.span)
        return lists(statement, self._catalog)

    def _columns(self, path: Path) -> tuple[tuple[str, str, str], ...]:
        view = self._catalog.views.get(self._catalog.full(path.parts))
        if view is not None:
            return columns_of_table(view.node.schema, view)
        found = self._resolver.table(path)
        return columns_of_table(found.table.schema, found)

    def describe(self, statement: Describe) -> TextResult:
        """Columns of a table or view, or what else is described."""
        path = statement.path
        match statement.kind:
            case "CATALOG":
                if path.parts[0] not in self._catalog.databases:
                    raise self._spaces.no_catalog(path.parts[0], path.span)
                rows = tuple((name,) for name in sorted(self._catalog.databases[path.parts[0]]))
                return TextResult(str(path), ("database",), rows)
            case "DATABASE":
                catalog, database = self._spaces.database(path)
                if database not in self._catalog.databases[catalog]:
                    raise self._spaces.no_database((catalog, database), path.span)
                names = sorted(self._catalog.names_in(catalog, database, "TABLES"))
                return TextResult(str(path), ("table",), tuple((name,) for name in names))
            case "FUNCTION":
                made = self._catalog.functions.get(self._catalog.full(path.parts))
                if made is None:
                    raise self.no_function(path)
                parts = (
                    ("signature", made.function.example),
                    ("result", str(made.function.result)),
                    ("calls", made.function.path),
                    ("deterministic", str(made.function.deterministic).upper()),
                    ("description", made.function.description),
                )
                return TextResult(str(path), ("part", "value"), parts)
            case "MODEL":
                model = self._catalog.model(path.parts)
                if model is None:
                    raise self.no_model(path)
                sides = ((model.inputs, "input"), (model.outputs, "output"))
                columns = tuple((field.name, str(field.type), side) for fields, side in sides for field in fields)
                return TextResult(str(path), ("column", "type", "side"), columns)
        return TextResult(str(path), ("column", "type", "note"), self._columns(path))

    def no_model(self, path: Path) -> SqlError:
        message = f'There is no model "{path}" that was made by CREATE MODEL.'
        hint = nearest(str(path), self._catalog.model_names())
        return self._script.error("SQL_UNKNOWN_NAME", message, path.span, remedy=hint or None)

    def no_function(self, path: Path) -> SqlError:
        message = f'There is no function "{path}" that was made by CREATE FUNCTION.'
        hint = nearest(path.parts[-1], [name[2] for name in self._catalog.functions])
        return self._script.error("SQL_UNKNOWN_NAME", message, path.span, remedy=hint or None)


def _lines(text: str) -> TextResult:
    return TextResult("The statement:", ("statement",), tuple((line,) for line in text.splitlines()))
