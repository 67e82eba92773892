"""The catalog of a session: catalogs, databases, tables, views and functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from millstream.streams.functions.registry import FUNCTIONS
from millstream.streams.functions.user_functions.user import UserFunction
from millstream.streams.learning.model import Model
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.tables import Table
from millstream.streams.sql.parser.names import path_text
from millstream.streams.sql.syntax.statements import CreateFunction
from millstream.streams.sql.syntax.tables import CreateTable

__all__ = [
    "DEFAULT_CATALOG",
    "DEFAULT_DATABASE",
    "Catalog",
    "CatalogDefinition",
    "CatalogFunction",
    "CatalogTable",
    "CatalogView",
    "FullName",
]

DEFAULT_CATALOG = "default_catalog"
DEFAULT_DATABASE = "default_database"

FullName = tuple[str, str, str]
"""Catalog, database, name."""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table, and how it was made: with LIKE resolved and ALTER applied."""

    table: Table
    definition: CreateTable


@dataclass(frozen=True, slots=True)
class CatalogView:
    """A view's rows, and the text of its query."""

    node: Node
    text: str
    temporary: bool


@dataclass(frozen=True, slots=True)
class CatalogFunction:
    """A function of a user, and how it was made. One that is of the `system` is found from every database."""

    function: UserFunction
    definition: CreateFunction


@dataclass(frozen=True, slots=True)
class CatalogDefinition:
    """How a catalog was made: `options` always have its type and its first database."""

    options: Mapping[str, str]
    comment: str = ""


_FIRST = CatalogDefinition({"type": "generic_in_memory", "default-database": DEFAULT_DATABASE})


@dataclass
class Catalog:
    """The names of one session. Names are case-sensitive, those of functions are not."""

    databases: dict[str, set[str]] = field(default_factory=lambda: {DEFAULT_CATALOG: {DEFAULT_DATABASE}})
    definitions: dict[str, CatalogDefinition] = field(default_factory=lambda: {DEFAULT_CATALOG: _FIRST})
    current: tuple[str, str] = (DEFAULT_CATALOG, DEFAULT_DATABASE)
    tables: dict[FullName, CatalogTable] = field(default_factory=dict)
    views: dict[FullName, CatalogView] = field(default_factory=dict)
    functions: dict[FullName, CatalogFunction] = field(default_factory=dict)
    models: dict[FullName, Model] = field(default_factory=dict)

    def copy(self) -> Catalog:
        """Another catalog with the same names, which changes alone."""
        databases = {catalog: set(names) for catalog, names in self.databases.items()}
        kept = (dict(self.tables), dict(self.views), dict(self.functions), dict(self.models))
        return Catalog(databases, dict(self.definitions), self.current, *kept)

    def full_name(self, parts: tuple[str, ...]) -> FullName:
        """The whole name of what is called so here; whether it exists is another question."""
        catalog, database = self.current
        match parts:
            case (name,):
                return catalog, database, name
            case (database, name):
                return catalog, database, name
            case _:
                return parts[0], parts[1], parts[2]

    def has_database(self, name: FullName) -> bool:
        """Whether the catalog and the database of a whole name exist."""
        return name[1] in self.databases.get(name[0], ())

    def short_name(self, name: FullName) -> str:
        """A whole name without the parts that are the defaults of every session."""
        if name[:2] == (DEFAULT_CATALOG, DEFAULT_DATABASE):
            return path_text(name[2:])
        return path_text(name[1:] if name[0] == DEFAULT_CATALOG else name)

    def known_names(self) -> list[str]:
        """Names of tables and views as they may be written here: what a misspelled one may have meant."""
        return [path_text(name[2:] if name[:2] == self.current else name) for name in (*self.tables, *self.views)]

    def function(self, name: str) -> UserFunction | None:
        """The user's function that a call of `name` means in the current database; those of the system go first.

        As in Flink only one of the system hides a function that is built in.
        """
        found = [made for key, made in self.functions.items() if key[2].upper() == name.upper()]
        system = next((made for made in found if made.definition.system), None)
        if system is not None:
            return system.function
        here = self.functions.items() if name.upper() not in FUNCTIONS else ()
        mine = (made for key, made in here if key[:2] == self.current and key[2].upper() == name.upper())
        return next((made.function for made in mine), None)

    def model(self, parts: tuple[str, ...]) -> Model | None:
        """The model that is called so here; None if there is none."""
        return self.models.get(self.full_name(parts))

    def model_names(self) -> list[str]:
        """Names of models as they may be written here."""
        return [path_text(name[2:] if name[:2] == self.current else name) for name in self.models]

    def names_in(self, catalog: str, database: str, kind: str) -> Iterator[str]:
        """Names of TABLES (with views), VIEWS, FUNCTIONS or MODELS in one database."""
        named = {
            "TABLES": (*self.tables, *self.views), "VIEWS": (*self.views,), "FUNCTIONS": (*self.functions,),
            "MODELS": (*self.models,),
        }[kind]  # fmt: skip
        return (name[2] for name in named if name[:2] == (catalog, database))
