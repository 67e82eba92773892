"""Executes catalog statements: CREATE, ALTER, DROP, USE, SHOW, DESCRIBE."""

from __future__ import annotations

from dataclasses import replace

from millstream.streams.functions.java_twins import JAVA_TWINS
from millstream.streams.functions.user_functions.user import UserFunctionProblem, load_user_function
from millstream.streams.plan.expressions import Column
from millstream.streams.plan.nodes import Node, Project, Sink
from millstream.streams.plan.types import TypeKind
from millstream.streams.sql.binder.models import bind_model
from millstream.streams.sql.binder.resolver import Resolver
from millstream.streams.sql.binder.tables import bind_table
from millstream.streams.sql.catalog.catalog import Catalog, CatalogFunction, CatalogTable, CatalogView, FullName
from millstream.streams.sql.catalog.derived_tables import apply_change, like, of_query, relocate
from millstream.streams.sql.catalog.listing import TextResult
from millstream.streams.sql.catalog.namespaces import Namespaces
from millstream.streams.sql.options.option_checks import with_options
from millstream.streams.sql.session.inspection import Inspection
from millstream.streams.sql.syntax.expressions import NameTerm
from millstream.streams.sql.syntax.script import Script, Span, did_you_mean
from millstream.streams.sql.syntax.statements import (
    AlterSpace,
    AlterView,
    AnalyzeTable,
    CreateCatalog,
    CreateDatabase,
    CreateFunction,
    CreateModel,
    CreateView,
    Describe,
    Drop,
    Insert,
    Show,
    Statement,
    Use,
)
from millstream.streams.sql.syntax.tables import AlterTable, CreateTable, OptionDefinition, Path, RenameTable

__all__ = ["Definitions"]


class Definitions:
    """What the statements of one script do to one catalog."""

    def __init__(self, script: Script, catalog: Catalog, resolver: Resolver) -> None:
        self._script = script
        self._catalog = catalog
        self._resolver = resolver
        self._spaces = Namespaces(script, catalog)
        self._inspection = Inspection(script, catalog, resolver, self._spaces)

    def execute(self, statement: Statement) -> TextResult:
        """Carry the statement out; what is to be said about it. Raises SqlError."""
        match statement:
            case CreateTable():
                return self._create_table(statement)
            case CreateView():
                return self._create_view(statement)
            case CreateCatalog() | CreateDatabase() | AlterSpace():
                return self._spaces.change(statement)
            case CreateFunction() | CreateModel():
                return self._create_called(statement)
            case AlterTable():
                return self._alter_table(statement)
            case AlterView():
                return self._alter_view(statement)
            case AnalyzeTable(path=path):
                self._resolver.table(path)
                return TextResult("Nothing is done: plans do not depend on statistics.")
            case Show():
                return self._inspection.show(statement)
            case Describe():
                return self._inspection.describe(statement)
            case Use():
                return self._spaces.use(statement)
            case Drop():
                return self._drop(statement)
            case _:
                raise AssertionError(f"{type(statement).__name__} is no definition")

    def create_table_as(self, statement: CreateTable) -> Sink | TextResult:
        """CREATE TABLE ... AS: the table, and the INSERT that fills it."""
        assert statement.query is not None
        full = self._spaces.resolve_new_name(statement.path)
        if self._is_taken(full, statement.if_not_exists, statement.replaces, statement.span):
            return TextResult(f"{self._catalog.short_name(full)} exists already.")
        node = self._resolver.bind_query(statement.query)
        for field in node.schema.fields:
            if field.type.kind is TypeKind.NULL:
                message = f'The column "{field.name}" is always NULL, so it has no type.'
                raise self._script.error("SQL_TYPE", message, statement.query.span, remedy="Use CAST(NULL AS ...).")
        definition = replace(of_query(statement, node.schema, self._script), query=None)
        table = bind_table(definition, self._script, self._catalog.short_name(full)).table
        self._catalog.tables[full] = CatalogTable(table, definition)
        names = tuple(NameTerm((field.name,), statement.span) for field in node.schema.fields)
        insert = Insert(statement.path, names, statement.query, statement.span)
        return self._resolver.bind_sink(insert, table, node)

    def _create_table(self, statement: CreateTable) -> TextResult:
        full = self._spaces.resolve_new_name(statement.path)
        if self._is_taken(full, statement.if_not_exists, statement.replaces, statement.span):
            return TextResult(f"{self._catalog.short_name(full)} exists already.")
        if statement.like is not None:
            source = self._resolver.table(statement.like.table).definition
            statement = like(statement, source, self._script)
        return self._keep(full, statement, "created")

    def _keep(self, full: FullName, definition: CreateTable, done: str) -> TextResult:
        name = self._catalog.short_name(full)
        bound = bind_table(definition, self._script, name)
        # Under our names, so that LIKE and ALTER find an option by whatever name it was given.
        options = tuple(OptionDefinition(key, value, definition.span) for key, value in bound.table.options.items())
        self._catalog.tables[full] = CatalogTable(bound.table, replace(definition, options=options))
        return TextResult(" ".join((f"Table {name} is {done}.", *bound.notes)))

    def _create_view(self, statement: CreateView) -> TextResult:
        full = self._spaces.resolve_new_name(statement.path)
        if self._is_taken(full, statement.if_not_exists, statement.replaces, statement.span):
            return TextResult(f"{self._catalog.short_name(full)} exists already.")
        node = self._resolver.view(statement.query)
        if statement.columns:
            node = self._rename_columns(node, statement)
        self._catalog.views[full] = CatalogView(node, statement.text, statement.temporary)
        return TextResult(f"View {self._catalog.short_name(full)} is created.")

    def _rename_columns(self, node: Node, statement: CreateView) -> Node:
        fields = node.schema.fields
        if len(fields) != len(statement.columns) or len(set(statement.columns)) != len(fields):
            message = f"The view names {len(statement.columns)} different columns, but its query has {len(fields)}."
            raise self._script.error("SQL_SYNTAX", message, statement.span)
        pairs = tuple(zip(statement.columns, fields, strict=True))
        columns = tuple((name, Column(of.name, of.type)) for name, of in pairs)
        rowtime = frozenset(name for name, of in pairs if of.rowtime)
        return Project(node, columns, rowtime, frozenset(name for name, of in pairs if of.proctime))

    def _is_taken(self, full: FullName, if_not_exists: bool, replaces: bool, span: Span) -> bool:
        if full not in self._catalog.tables and full not in self._catalog.views:
            return False
        if replaces:
            self._catalog.tables.pop(full, None)
            self._catalog.views.pop(full, None)
            return False
        if not if_not_exists:
            message = f'There is a table or view "{self._catalog.short_name(full)}" already.'
            raise self._script.error("SQL_TABLE_EXISTS", message, span)
        return True

    def _create_called(self, statement: CreateFunction | CreateModel) -> TextResult:
        if isinstance(statement, CreateModel):
            return self._create_model(statement)
        return self._create_function(statement)

    def _create_function(self, statement: CreateFunction) -> TextResult:
        full = self._spaces.resolve_new_name(statement.path)
        name = statement.path.parts[-1]
        there = full in self._catalog.functions
        if statement.alters and not there:
            if statement.if_exists:
                return TextResult(f"There is no function {name}.")
            raise self._inspection.no_function(statement.path)
        if there and statement.if_not_exists:
            return TextResult(f"The function {name} exists already.")
        if there and not statement.replaces:
            message = f'There is a function "{name}" already.'
            raise self._script.error("SQL_TABLE_EXISTS", message, statement.span)
        twin = statement.target in JAVA_TWINS
        if not twin and (statement.jars or statement.language in ("JAVA", "SCALA")):
            message = "Functions of Java do not run here."
            remedy = "Write it in Python: CREATE FUNCTION f AS 'module.name' LANGUAGE PYTHON."
            raise self._script.error("SQL_UNSUPPORTED", message, statement.span, remedy=remedy)
        try:
            function = load_user_function(name, JAVA_TWINS.get(statement.target, statement.target))
        except UserFunctionProblem as problem:
            remedy = problem.remedy
            if not statement.language:
                remedy += " Classes of Java, which Flink expects without LANGUAGE PYTHON, do not run here."
            raise self._script.error("SQL_UNKNOWN_FUNCTION", problem.message, statement.span, remedy=remedy) from None
        function = with_options(function, statement.options, self._script)
        self._catalog.functions[full] = CatalogFunction(function, statement)
        return TextResult(f"Function {name} is {'changed' if statement.alters else 'created'}.")

    def _create_model(self, statement: CreateModel) -> TextResult:
        full = self._spaces.resolve_new_name(statement.path)
        name = statement.path.parts[-1]
        if full in self._catalog.models and statement.if_not_exists:
            return TextResult(f"The model {name} exists already.")
        if full in self._catalog.models and not statement.replaces:
            raise self._script.error("SQL_TABLE_EXISTS", f'There is a model "{name}" already.', statement.span)
        self._catalog.models[full] = bind_model(statement, self._script)
        return TextResult(f"Model {name} is created.")

    def _alter_table(self, statement: AlterTable) -> TextResult:
        full = self._catalog.full_name(statement.path.parts)
        if statement.if_exists and full not in self._catalog.tables:
            return TextResult(f"There is no table {statement.path}.")
        found = self._resolver.table(statement.path)
        if isinstance(statement.change, RenameTable):
            renamed = self._spaces.resolve_new_name(_sibling(statement.change.path, full))
            self._is_taken(renamed, False, False, statement.change.path.span)
            del self._catalog.tables[full]
            return self._keep(renamed, relocate(found.definition, statement.span), "renamed")
        definition = apply_change(
            relocate(found.definition, statement.span), statement.change, self._script, statement.span
        )
        return self._keep(full, definition, "changed")

    def _alter_view(self, statement: AlterView) -> TextResult:
        full = self._catalog.full_name(statement.path.parts)
        view = self._catalog.views.get(full)
        if view is None:
            raise self._resolver.unknown(full, str(statement.path), statement.path.span)
        if statement.query is not None:
            node = self._resolver.view(statement.query)
            self._catalog.views[full] = CatalogView(node, statement.text, view.temporary)
            return TextResult(f"View {self._catalog.short_name(full)} is changed.")
        assert statement.renamed is not None
        renamed = self._spaces.resolve_new_name(_sibling(statement.renamed, full))
        self._is_taken(renamed, False, False, statement.renamed.span)
        self._catalog.views[renamed] = self._catalog.views.pop(full)
        return TextResult(f"View {self._catalog.short_name(renamed)} is renamed.")

    def _drop(self, statement: Drop) -> TextResult:
        kind, path = statement.kind, statement.path
        if kind in ("CATALOG", "DATABASE"):
            return self._spaces.drop(statement)
        full = self._catalog.full_name(path.parts)
        kept: dict[FullName, object] = {
            "TABLE": self._catalog.tables, "VIEW": self._catalog.views, "FUNCTION": self._catalog.functions,
            "MODEL": self._catalog.models,
        }[kind]  # type: ignore[assignment]  # fmt: skip
        if full in kept:
            del kept[full]
            return TextResult(f"{path} is dropped.")
        if statement.if_exists:
            return TextResult(f"There is no {kind.lower()} {path}.")
        if kind == "FUNCTION":
            raise self._inspection.no_function(path)
        if kind == "MODEL":
            raise self._inspection.no_model(path)
        other = "view" if full in self._catalog.views else "table" if full in self._catalog.tables else ""
        remedy = (
            f"It is a {other}: use DROP {other.upper()}."
            if other
            else did_you_mean(str(path), self._catalog.known_names())
        )
        message = f'There is no {kind.lower()} "{path}".'
        raise self._script.error("SQL_UNKNOWN_TABLE", message, statement.span, remedy=remedy or None)


def _sibling(path: Path, full: FullName) -> Path:
    """The new name of something: in its own database where the name has one part."""
    return path if len(path.parts) > 1 else Path((*full[:2], *path.parts), path.span)
