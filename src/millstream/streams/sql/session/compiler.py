"""Compiles scripts to plans, in a session with tables, views, functions, settings and variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.streams.errors import SqlError
from millstream.streams.optimizer.explain import explain_query, explain_sinks
from millstream.streams.plan.nodes import JobPlan, Node, QueryPlan, Sink
from millstream.streams.sql.binder.resolver import Resolver
from millstream.streams.sql.catalog.catalog import Catalog, CatalogView
from millstream.streams.sql.catalog.listing import TextResult
from millstream.streams.sql.options.option_checks import check_read_options_of_script
from millstream.streams.sql.options.settings import SETTING_ALIASES, SETTINGS, SettingProblem, check_setting
from millstream.streams.sql.parser.statement_parser import parse_script, too_deep
from millstream.streams.sql.session.definitions import Definitions
from millstream.streams.sql.shell.completion import Completions, complete
from millstream.streams.sql.shell.explain import explain_node, explain_sink, json_plan
from millstream.streams.sql.syntax.script import PREFIX, Script, Span, Variables
from millstream.streams.sql.syntax.statements import (
    Explain,
    Insert,
    PrintTopic,
    Query,
    Reset,
    SetOption,
    Show,
    Statement,
    StatementSet,
    StopJob,
)
from millstream.streams.sql.syntax.tables import CreateTable

__all__ = ["Command", "JobCommand", "PrintCommand", "SqlSession", "TextResult"]


@dataclass(frozen=True, slots=True)
class JobCommand:
    """What is asked of whoever runs the jobs: SHOW lists them, STOP ends the one that is named `job`."""

    action: str
    job: str = ""


@dataclass(frozen=True, slots=True)
class PrintCommand:
    """Show the messages of a topic as they come: from now on, or from its beginning; `limit` None has no end."""

    topic: str
    from_beginning: bool = False
    limit: int | None = None


Command = JobPlan | QueryPlan | TextResult | JobCommand | PrintCommand


@dataclass
class _State:
    catalog: Catalog = field(default_factory=Catalog)
    settings: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(self.catalog.copy(), dict(self.settings), dict(self.variables))


class SqlSession:
    """Compiles scripts; what they create and set stays from one script to the next.

    `variables` are values of ${name}; SET 'var.name' goes before them, and the environment comes last.
    """

    def __init__(self, *, nameserver: str = "", variables: Mapping[str, str] | None = None) -> None:
        self._state = _State(settings={"millstream.nameserver": nameserver} if nameserver else {})
        self._defaults = dict(self._state.settings)
        self._variables = dict(variables or {})

    @property
    def catalog(self) -> Catalog:
        """The tables, views and functions as they are now."""
        return self._state.catalog

    @property
    def settings(self) -> dict[str, str]:
        """The settings that are not at their defaults."""
        return dict(self._state.settings)

    def set(self, name: str, value: str) -> None:
        """What SET says. Raises SqlError for an unknown name, or a value that the setting cannot have."""
        self.compile("SET '{}' = '{}'".format(*(text.replace("'", "''") for text in (name, value))))

    def complete(self, text: str, cursor: int) -> Completions:
        """What the word at the cursor of an unfinished text may become."""
        return complete(text, cursor, self._state.catalog)

    def compile(self, text: str, *, single: bool = False) -> list[Command]:
        """One command per statement of the script. Raises SqlError, and nothing of the script has taken effect then.

        `single` refuses more than one statement.
        """
        state = self._state.copy()
        script = Script(text, state.catalog.function, state.catalog, lambda: state.catalog.current[1])
        statements = parse_script(script, Variables({**self._variables, **state.variables}))
        if not statements:
            raise script.error("SQL_SCRIPT", "The script has no statement.", Span(0, 1))
        if single and len(statements) > 1:
            raise _several(script, len(statements))
        compilation = _Compilation(script, state, self._defaults)
        commands = []
        for start, statement in statements:
            try:
                commands.append(compilation.command(statement))
            except RecursionError:
                raise too_deep(script, start) from None
        self._state = state
        return commands

    def rows(self, query: str, inputs: Mapping[str, Node]) -> Node:
        """The plan of one query over the session's tables and over `inputs`, each under its name; not narrowed yet.

        It is bound as a view's query is, since more may be built on it. Raises SqlError.
        """
        script, state, statement = self._alone(query, inputs)
        if not isinstance(statement, Query):
            raise script.error("SQL_SCRIPT", "This is no query.", Span(0, 1), remedy="Write SELECT ....")
        return Resolver(script, state.catalog, state.settings).view(statement.select)

    def sink(self, insert: str, inputs: Mapping[str, Node]) -> Sink:
        """The plan of one INSERT over the session's tables and over `inputs`, each under its name. Raises SqlError."""
        script, state, statement = self._alone(insert, inputs)
        if not isinstance(statement, Insert):
            raise script.error("SQL_SCRIPT", "This is no INSERT.", Span(0, 1), remedy="Write INSERT INTO ....")
        return Resolver(script, state.catalog, state.settings).insert(statement)

    def _alone(self, text: str, inputs: Mapping[str, Node]) -> tuple[Script, _State, Statement]:
        """The one statement of a text, and the session as it sees it."""
        state = self._state.copy()
        for name, node in inputs.items():
            full = state.catalog.full_name((name,))
            state.catalog.tables.pop(full, None)
            state.catalog.views[full] = CatalogView(node, "", temporary=True)
        script = Script(text, state.catalog.function, state.catalog, lambda: state.catalog.current[1])
        statements = parse_script(script, Variables({**self._variables, **state.variables}))
        if len(statements) != 1:
            raise _several(script, len(statements))
        return script, state, statements[0][1]


def _several(script: Script, count: int) -> SqlError:
    return script.error(
        "SQL_SCRIPT", f"This is {count} statements, and one is wanted.", Span(0, 1), remedy="Write one."
    )


class _Compilation:
    """One script against what the session has so far."""

    def __init__(self, script: Script, state: _State, defaults: dict[str, str]) -> None:
        self._script = script
        self._state = state
        self._defaults = defaults
        self._resolver = Resolver(script, state.catalog, state.settings)
        self._definitions = Definitions(script, state.catalog, self._resolver)

    def command(self, statement: Statement) -> Command:
        match statement:
            case CreateTable() if statement.query is not None:
                sink = self._definitions.create_table_as(statement)
                if isinstance(sink, TextResult):
                    return sink
                check_read_options_of_script([sink.input], statement.query.span, self._script)
                return JobPlan((sink,), self._settings())
            case Insert() | StatementSet():
                inserts = statement.inserts if isinstance(statement, StatementSet) else (statement,)
                sinks = tuple(map(self._resolver.insert, inserts))
                check_read_options_of_script([sink.input for sink in sinks], inserts[0].span, self._script)
                return JobPlan(sinks, self._settings())
            case Query(select=select):
                query = self._resolver.query(select)
                check_read_options_of_script([query], select.span, self._script)
                return QueryPlan(query, self._settings())
            case Explain():
                return self._explain(statement)
            case SetOption():
                return self._set_option(statement)
            case Reset():
                return self._reset(statement)
            case Show(what="JOBS"):
                return JobCommand("SHOW")
            case StopJob(job=job):
                return JobCommand("STOP", job)
            case PrintTopic():
                return PrintCommand(statement.topic, statement.from_beginning, statement.limit)
            case _:
                return self._definitions.execute(statement)

    def _settings(self) -> dict[str, str]:
        return dict(self._state.settings)

    def _explain(self, statement: Explain) -> TextResult:
        inner = statement.statement
        roots: list[Node] = []
        lines: list[str] = []
        sinks: list[Sink] = []
        if isinstance(inner, Query):
            span = inner.select.span
            roots.append(self._resolver.query(inner.select))
            lines += [*explain_node(roots[0]), *explain_query(roots[0], self._state.settings)]
        else:
            inserts = inner.inserts if isinstance(inner, StatementSet) else (inner,)
            span = inserts[0].span
            for insert in inserts:
                sink = self._resolver.insert(insert)
                roots.append(sink.input)
                lines += explain_sink(sink)
                sinks.append(sink)
            lines += explain_sinks(sinks, self._state.settings)
        check_read_options_of_script(roots, span, self._script)
        if "ESTIMATED_COST" in statement.details:
            lines.append("Costs are not estimated.")
        if "PLAN_ADVICE" in statement.details:
            lines.append("There is no advice.")
        if "JSON_EXECUTION_PLAN" in statement.details:
            lines += json_plan(roots).splitlines()
        return TextResult("The plan:", ("plan",), tuple((line,) for line in lines))

    def _set_option(self, statement: SetOption) -> TextResult:
        settings, key, value = self._state.settings, statement.key, statement.value
        if key is None:
            rows = [(name, settings.get(name, setting.default)) for name, setting in SETTINGS.items()]
            rows += [(name, value) for name, value in settings.items() if name not in SETTINGS]
            rows += [(f"{PREFIX}{name}", value) for name, value in self._state.variables.items()]
            return TextResult("Settings:", ("setting", "value"), tuple(rows))
        if key.startswith(PREFIX):
            self._state.variables[key.removeprefix(PREFIX)] = value
            return TextResult(f"The variable {key.removeprefix(PREFIX)} is {value}.")
        key = SETTING_ALIASES.get(key, key)
        note = self._check_value(key, value, statement.span)
        settings[key] = value
        return TextResult(f"{key} is {value}.{f' {note}' if note else ''}")

    def _reset(self, statement: Reset) -> TextResult:
        settings, key = self._state.settings, statement.key
        if key is None:
            settings.clear()
            settings.update(self._defaults)
            self._state.variables.clear()
            return TextResult("All settings have their defaults.")
        if key.startswith(PREFIX):
            self._state.variables.pop(key.removeprefix(PREFIX), None)
            return TextResult(f"The variable {key.removeprefix(PREFIX)} has its first value.")
        key = SETTING_ALIASES.get(key, key)
        if key not in SETTINGS:
            self._check_value(key, "", statement.span)
        settings.pop(key, None)
        settings.update({name: value for name, value in self._defaults.items() if name == key})
        return TextResult(f"{key} has its default.")

    def _check_value(self, name: str, value: str, span: Span) -> str:
        try:
            return check_setting(name, value)
        except SettingProblem as problem:
            raise self._script.error(problem.name, problem.message, span, remedy=problem.remedy) from None
