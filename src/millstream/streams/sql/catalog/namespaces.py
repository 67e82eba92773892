"""Catalogs and databases of a session: namespaces of tables, views and functions."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.streams.errors import SqlError
from millstream.streams.sql.catalog.catalog import Catalog, CatalogDefinition, FullName
from millstream.streams.sql.catalog.listing import TextResult
from millstream.streams.sql.syntax.script import Script, Span, did_you_mean
from millstream.streams.sql.syntax.statements import AlterSpace, CreateCatalog, CreateDatabase, Drop, Use
from millstream.streams.sql.syntax.tables import Path

__all__ = ["Namespaces"]

_TYPE = "generic_in_memory"

_FIRST_DATABASE = "default"
"""What a new catalog begins with, unless it says otherwise."""


class Namespaces:
    """What the statements of one script do to the catalogs and databases."""

    def __init__(self, script: Script, catalog: Catalog) -> None:
        self._script = script
        self._catalog = catalog

    def resolve_new_name(self, path: Path) -> FullName:
        """The whole name of something new. Raises SQL_UNKNOWN_NAME where its database does not exist."""
        full = self._catalog.full_name(path.parts)
        if not self._catalog.has_database(full):
            raise self.no_database(full, path.span)
        return full

    def no_database(self, full: tuple[str, ...], span: Span) -> SqlError:
        known = [f"{catalog}.{name}" for catalog, names in self._catalog.databases.items() for name in sorted(names)]
        remedy = did_you_mean(f"{full[0]}.{full[1]}", known) or f"Databases: {', '.join(known)}."
        return self._script.error(
            "SQL_UNKNOWN_NAME", f'There is no database "{full[0]}.{full[1]}".', span, remedy=remedy
        )

    def change(self, statement: CreateCatalog | CreateDatabase | AlterSpace) -> TextResult:
        """Make a catalog or a database, or change one. Raises SqlError."""
        return self._alter(statement) if isinstance(statement, AlterSpace) else self._create(statement)

    def _create(self, statement: CreateCatalog | CreateDatabase) -> TextResult:
        databases = self._catalog.databases
        if isinstance(statement, CreateCatalog):
            kind, name, there = "Catalog", statement.name, statement.name in databases
            options = self._options(statement, {})
        else:
            kind = "Database"
            catalog, name = self.database(statement.path)
            there = name in databases[catalog]
        if there and not statement.if_not_exists:
            raise self._script.error("SQL_TABLE_EXISTS", f'There is a {kind.lower()} "{name}" already.', statement.span)
        if there:
            return TextResult(f"{name} exists already.")
        if isinstance(statement, CreateCatalog):
            databases[name] = {options["default-database"]}
            self._catalog.definitions[name] = CatalogDefinition(options, statement.comment)
        else:
            databases[catalog].add(name)
        return TextResult(f"{kind} {name} is created.")

    def _alter(self, statement: AlterSpace) -> TextResult:
        path = statement.path
        if statement.kind == "DATABASE":
            catalog, database = self.database(path)
            if database not in self._catalog.databases[catalog]:
                raise self.no_database((catalog, database), path.span)
            return TextResult("Nothing is done: a database is a name, and has no options.")
        found = self.definition(path)
        kept = {key: value for key, value in found.options.items() if key not in statement.reset}
        options = self._options(statement, kept)
        comment = found.comment if statement.comment is None else statement.comment
        self._catalog.definitions[path.parts[0]] = CatalogDefinition(options, comment)
        return TextResult(f"Catalog {path} is changed.")

    def _options(self, statement: CreateCatalog | AlterSpace, kept: Mapping[str, str]) -> dict[str, str]:
        """The options of a catalog that has those that are `kept`, with the defaults. Raises SqlError."""
        options = {"type": _TYPE, "default-database": _FIRST_DATABASE, **kept}
        for option in statement.options:
            if option.key not in options:
                message = f"A catalog has no option '{option.key}'."
                remedy = did_you_mean(option.key, tuple(options)) or f"Options: {', '.join(options)}."
                raise self._script.error("SQL_OPTION", message, option.span, remedy=remedy)
            options[option.key] = option.value
        if options["type"] != _TYPE:
            message = f"Catalogs of type '{options['type']}' are not supported: catalogs are kept by the session alone."
            raise self._script.error("SQL_UNSUPPORTED", message, statement.span, remedy=f"Use '{_TYPE}'.")
        return options

    def definition(self, path: Path) -> CatalogDefinition:
        """How the catalog of that name was made. Raises SQL_UNKNOWN_NAME where there is none."""
        found = self._catalog.definitions.get(path.parts[0])
        if found is None:
            raise self.no_catalog(path.parts[0], path.span)
        return found

    def database(self, path: Path) -> tuple[str, str]:
        """Catalog and name of a database, of which the catalog exists."""
        catalog = path.parts[0] if len(path.parts) > 1 else self._catalog.current[0]
        if catalog not in self._catalog.databases:
            raise self.no_catalog(catalog, path.span)
        return catalog, path.parts[-1]

    def no_catalog(self, name: str, span: Span) -> SqlError:
        """The error for a catalog that does not exist."""
        known = list(self._catalog.databases)
        remedy = did_you_mean(name, known) or f"Catalogs: {', '.join(known)}."
        return self._script.error("SQL_UNKNOWN_NAME", f'There is no catalog "{name}".', span, remedy=remedy)

    def use(self, statement: Use) -> TextResult:
        if statement.kind == "CATALOG":
            catalog = statement.path.parts[0]
            first = self.definition(statement.path).options["default-database"]
            there = self._catalog.databases[catalog]
            database = first if first in there else min(there, default="")
        else:
            catalog, database = self.database(statement.path)
            if database not in self._catalog.databases[catalog]:
                raise self.no_database((catalog, database), statement.path.span)
        self._catalog.current = (catalog, database)
        return TextResult(f"The database is {catalog}.{database}.")

    def drop(self, statement: Drop) -> TextResult:
        path, databases = statement.path, self._catalog.databases
        if statement.kind == "CATALOG":
            catalog, there = path.parts[0], path.parts[0] in databases
            held = [name for name in (*self._catalog.tables, *self._catalog.views) if name[0] == catalog]
            in_use = catalog == self._catalog.current[0]
        else:
            if path.parts[0] not in databases and len(path.parts) > 1 and statement.if_exists:
                return TextResult(f"There is no database {path}.")
            catalog, database = self.database(path)
            there = database in databases[catalog]
            held = [name for name in (*self._catalog.tables, *self._catalog.views) if name[:2] == (catalog, database)]
            in_use = (catalog, database) == self._catalog.current
        if not there and statement.if_exists:
            return TextResult(f"There is no {statement.kind.lower()} {path}.")
        if not there:
            raise (
                self.no_catalog(catalog, path.span)
                if statement.kind == "CATALOG"
                else self.no_database((catalog, path.parts[-1]), path.span)
            )
        if in_use:
            message = f"The {statement.kind.lower()} {path} is the one in use."
            raise self._script.error("SQL_UNSUPPORTED", message, statement.span, remedy="USE another one first.")
        if held and not statement.cascades:
            message = f"The {statement.kind.lower()} {path} is not empty: {len(held)} tables and views."
            remedy = "Say CASCADE to drop them too." if statement.kind == "DATABASE" else "Drop its databases first."
            raise self._script.error("SQL_UNSUPPORTED", message, statement.span, remedy=remedy)
        for name in held:
            self._catalog.tables.pop(name, None)
            self._catalog.views.pop(name, None)
        if statement.kind == "CATALOG":
            del databases[catalog]
            del self._catalog.definitions[catalog]
        else:
            databases[catalog].remove(database)
        return TextResult(f"{path} is dropped.")
