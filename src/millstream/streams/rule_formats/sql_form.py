"""Rules as INSERTs of SQL: `INSERT INTO alerts SELECT 'r17' AS rule, host FROM events WHERE ...`, one rule each.

The other statements of a file (CREATE TABLE, CREATE VIEW, SET) say what the INSERTs read and write. Values are compared
as the JSON of an event has them; the declared type says whether as a text, a number or a truth value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from millstream.streams.errors import SqlError
from millstream.streams.plan.branch import Branch, branch_of, to_stored_columns
from millstream.streams.plan.expressions import Cast, Column, Expression, Literal, columns_of
from millstream.streams.plan.nodes import JobPlan, Sink
from millstream.streams.plan.tables import PhysicalColumn
from millstream.streams.rules.conditions import predicates_of
from millstream.streams.rules.imported_rules import ImportedRules, Refusal
from millstream.streams.rules.reference import FIELD_SEPARATOR
from millstream.streams.rules.rule import Rule
from millstream.streams.rules_sql.from_sql import split_conjuncts
from millstream.streams.sql.parser.lexer import Token, tokenize
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.syntax.script import Script, Span

__all__ = ["read_sql_rules"]

_ID_COLUMNS = ("rule", "rule_id", "rule_name", "id")
_TITLE_COLUMNS = ("title", "rule_title", "name")
_LEVELS = ("informational", "low", "medium", "high", "critical")
_SET_BEGINNINGS = (("EXECUTE", "STATEMENT", "SET", "BEGIN"), ("BEGIN", "STATEMENT", "SET"))


def read_sql_rules(content: str, path: str) -> ImportedRules:
    """The rules of a script; one that cannot be a rule is refused and stops no other."""
    script = Script(content)
    try:
        statements = list(_statements(script, tokenize(script)))
    except SqlError as error:
        return ImportedRules(refused=(_refusal(error, path),))
    session = SqlSession()
    rules: list[Rule] = []
    refused: list[Refusal] = []
    places: dict[str, tuple[str, int | None]] = {}
    for statement in statements:
        try:
            for command in session.compile(statement.padded_text):
                if isinstance(command, JobPlan):
                    for sink in command.sinks:
                        rules.append(rule := _rule(sink, statement, path, len(rules) + 1))
                        places[rule.id] = (path, statement.line)
        except SqlError as error:
            refused.append(_refusal(error, path))
        except _NoRuleError as error:
            refused.append(Refusal(path, str(error), statement.line, statement.column))
    fields = {
        predicate.field
        for rule in rules
        for predicate in predicates_of(rule.condition)
        if FIELD_SEPARATOR in predicate.field
    }
    paths: dict[str, tuple[tuple[str, ...], ...]] = {field: (tuple(field.split(FIELD_SEPARATOR)),) for field in fields}
    return ImportedRules(tuple(rules), tuple(refused), paths, places)


class _NoRuleError(ValueError):
    """Why an INSERT is no rule."""


@dataclass(frozen=True, slots=True)
class _Statement:
    """One statement; `placed` has it where it stands in its file, behind nothing but blanks."""

    text: str
    line: int
    column: int

    @property
    def padded_text(self) -> str:
        return "\n" * (self.line - 1) + " " * (self.column - 1) + self.text


def _statements(script: Script, tokens: list[Token]) -> Iterator[_Statement]:
    """Those between semicolons; the words around a statement set are none."""
    gathered: list[Token] = []
    for token in [*tokens, None]:
        if token is not None and not token.is_symbol(";"):
            gathered.append(token)
            if tuple(one.text.upper() for one in gathered) in _SET_BEGINNINGS:
                gathered = []
            continue
        if gathered and not (len(gathered) == 1 and gathered[0].is_word("END")):
            span = gathered[0].span.to(gathered[-1].span)
            place = script.position(Span(span.start, span.start + 1))
            yield _Statement(script.text[span.start : span.end], place.line, place.column)
        gathered = []


def _refusal(error: SqlError, path: str) -> Refusal:
    place = error.position
    words = f"{error.message} {error.remedy}".strip()
    return Refusal(path, words, place.line if place else None, place.column if place else None)


def _rule(sink: Sink, statement: _Statement, path: str, number: int) -> Rule:
    branch = branch_of(sink.input)
    if branch is None:
        raise _NoRuleError("It is more than columns and a condition over one table: let it run as a job of its own.")
    parts = split_conjuncts([to_stored_columns(one, branch.scan.table) for one in branch.conditions])
    if parts.rest:
        raise _NoRuleError(f"A part of its condition cannot be judged by rules: {parts.reasons[0]}.")
    _check_stored(branch)
    constants: dict[str, str] = {}
    shows: list[str] = []
    for name, value in branch.columns:
        constant = value.operand if isinstance(value, Cast) else value
        if isinstance(constant, Literal):
            constants[name.lower()] = "" if constant.value is None else str(constant.value)
        elif isinstance(value, Column):
            shows.append(value.name)
        else:
            raise _NoRuleError(f"It gives {value}; a rule shows columns as they are, and constants.")
    name = next((constants[one] for one in _ID_COLUMNS if constants.get(one)), f"{PurePath(path).stem}-{number}")
    title = next((constants[one] for one in _TITLE_COLUMNS if constants.get(one)), name)
    level = constants.get("level", "").lower()
    return Rule(
        name,
        title,
        parts.said,
        kind="sql",
        level=level if level in _LEVELS else "medium",
        shows=tuple(shows),
        text=statement.text,
    )


def _check_stored(branch: Branch) -> None:
    """Rules see the bodies of messages, and nothing beside them."""
    stored_names = {column.name for column in branch.scan.table.columns if isinstance(column, PhysicalColumn)}
    read: list[Expression] = [to_stored_columns(one, branch.scan.table) for one in branch.conditions]
    read += [value for _, value in branch.columns]
    beside = next((name for one in read for name in columns_of(one) if name not in stored_names), None)
    if beside is not None:
        raise _NoRuleError(f"It reads {beside}, which is not in the body of a message.")
