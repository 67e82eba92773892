"""CREATE TABLE: columns, watermark, keys, options, LIKE and AS."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.streams.plan.types import STRING
from millstream.streams.sql.parser.cursor import Cursor
from millstream.streams.sql.parser.lexer import TokenKind
from millstream.streams.sql.parser.names import name_list, name_term, parse_key, parse_path
from millstream.streams.sql.parser.query_parser import parse_select
from millstream.streams.sql.parser.term_parser import parse_term
from millstream.streams.sql.parser.type_parser import parse_type
from millstream.streams.sql.syntax.expressions import NameTerm
from millstream.streams.sql.syntax.script import Span
from millstream.streams.sql.syntax.tables import (
    ColumnDefinition,
    CreateTable,
    Distribution,
    LikeClause,
    OptionDefinition,
    Path,
    WatermarkDefinition,
)

__all__ = ["QUERY_WORDS", "TableElements", "parse_create_table", "parse_options"]

QUERY_WORDS = ("SELECT", "WITH", "VALUES")
"""What a query begins with, beside a bracket."""

_STRATEGIES = ("INCLUDING", "EXCLUDING", "OVERWRITING")
_FEATURES = ("ALL", "CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS")
_NOT_OVERWRITTEN = ("ALL", "CONSTRAINTS", "DISTRIBUTION", "PARTITIONS")
_ENDS_OF_BARE_COLUMN = ("COMMENT", "METADATA", "HEADER", "PRIMARY", "CONSTRAINT", "UNIQUE")


@dataclass
class TableElements:
    """What stands between the brackets of CREATE TABLE and of ALTER TABLE ... ADD, as it is read."""

    columns: list[ColumnDefinition] = field(default_factory=list)
    watermark: WatermarkDefinition | None = None
    primary_key: tuple[NameTerm, ...] = ()
    unique_keys: list[tuple[NameTerm, ...]] = field(default_factory=list)
    is_dimension: bool = False

    def read(self, cursor: Cursor) -> ColumnDefinition | None:
        """Read one element; the column if it is one."""
        start = cursor.here()
        if self._begins_watermark(cursor):
            if self.watermark is not None:
                raise cursor.script.error("SQL_SYNTAX", "A table has one WATERMARK.", start)
            self.watermark = _watermark(cursor)
        elif self._begins_key(cursor):
            self._read_key(cursor, None)
        elif cursor.take("PERIOD", "FOR", "SYSTEM_TIME"):
            self.is_dimension = True
        else:
            column = self._column(cursor)
            self.columns.append(column)
            return column
        return None

    @staticmethod
    def _begins_watermark(cursor: Cursor) -> bool:
        following = cursor.peek(2)
        return cursor.sees("WATERMARK") and (
            cursor.sees("WATERMARK", "FOR") or (following is not None and following.is_word("FOR"))
        )

    @staticmethod
    def _begins_key(cursor: Cursor) -> bool:
        following = cursor.peek(1)
        unique = cursor.sees("UNIQUE") and following is not None and following.is_symbol("(")
        named = cursor.sees("CONSTRAINT") and following is not None and following.kind is not TokenKind.SYMBOL
        return unique or named or cursor.sees("PRIMARY", "KEY")

    def _read_key(self, cursor: Cursor, column: NameTerm | None) -> None:
        """A key of the columns that are named, or of the `column` that it stands behind."""
        start = cursor.here()
        if cursor.take("CONSTRAINT"):
            cursor.name("a constraint's name")
        unique = cursor.take("UNIQUE")
        if not unique:
            cursor.need("PRIMARY", "KEY")
        names = (column,) if column is not None else name_list(cursor)
        if cursor.sees("ENFORCED"):
            raise cursor.unsupported_error("Keys are not checked, so none is ENFORCED.", remedy="Write NOT ENFORCED.")
        cursor.take("NOT", "ENFORCED")
        if unique:
            self.unique_keys.append(names)
        elif self.primary_key:
            raise cursor.script.error("SQL_SYNTAX", "A table has one PRIMARY KEY.", start)
        else:
            self.primary_key = names

    def _column(self, cursor: Cursor) -> ColumnDefinition:
        token = cursor.name("a column's name")
        if cursor.take("AS"):
            expression = parse_term(cursor)
            text = cursor.script.text[expression.span.start : expression.span.end]
            return ColumnDefinition(token.text, token.span, expression=expression, comment=_comment(cursor), text=text)
        data_type = STRING if _ends_column(cursor) else parse_type(cursor)
        key: str | None = None
        virtual = False
        if cursor.take("METADATA"):
            key = cursor.string("a metadata 'key'").text if cursor.take("FROM") else token.text
            virtual = cursor.take("VIRTUAL")
        elif cursor.take("HEADER"):
            key, virtual = token.text, True
        comment = _comment(cursor)
        while cursor.sees("PRIMARY") or cursor.sees("UNIQUE") or cursor.sees("CONSTRAINT"):
            self._read_key(cursor, NameTerm((token.text,), token.span))
        return ColumnDefinition(token.text, token.span, data_type, None, key, virtual, comment or _comment(cursor))


def parse_create_table(cursor: Cursor, start: Span, *, temporary: bool, replaces: bool) -> CreateTable:
    """What comes behind CREATE [OR REPLACE] [TEMPORARY] TABLE; `start` is the place of CREATE."""
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    path = parse_path(cursor, "a table's name")
    span = cursor.since(start)
    elements = TableElements()
    if cursor.sees_symbol("("):
        _read_elements(cursor, elements)
    comment = _comment(cursor)
    distribution = _distribution(cursor) if cursor.take("DISTRIBUTED") else None
    partitions: tuple[NameTerm, ...] = ()
    if cursor.take("PARTITIONED"):
        cursor.need("BY")
        partitions = name_list(cursor)
    options = parse_options(cursor) if cursor.take("WITH") else ()
    like = _like(cursor) if cursor.take("LIKE") else None
    query = parse_select(cursor) if like is None and cursor.take("AS") else None
    if not elements.columns and like is None and query is None:
        raise cursor.expected_error("( and the columns, LIKE or AS")
    return CreateTable(
        path, tuple(elements.columns), options, span, elements.watermark, elements.primary_key,
        tuple(elements.unique_keys), partitions, distribution, elements.is_dimension, comment, like, query,
        if_not_exists, replaces, temporary,
    )  # fmt: skip


def _read_elements(cursor: Cursor, elements: TableElements) -> None:
    cursor.need_symbol("(")
    elements.read(cursor)
    while cursor.take_symbol(","):
        elements.read(cursor)
    cursor.need_symbol(")")


def parse_options(cursor: Cursor) -> tuple[OptionDefinition, ...]:
    """Options in brackets, keys and values in quotes or not."""
    cursor.need_symbol("(")
    options: list[OptionDefinition] = []
    while not cursor.sees_symbol(")"):
        key, start = parse_key(cursor, "an option's 'name'")
        cursor.need_symbol("=")
        token = cursor.peek()
        if token is None or token.kind not in (TokenKind.STRING, TokenKind.NUMBER, TokenKind.WORD):
            raise cursor.expected_error("an option's 'value'")
        cursor.advance()
        span = cursor.since(start)
        if any(key == known.key for known in options):
            raise cursor.script.error("SQL_OPTION", "An option is given twice.", span)
        options.append(OptionDefinition(key, token.text, span))
        if not cursor.take_symbol(","):
            break
    cursor.need_symbol(")")
    return tuple(options)


def _ends_column(cursor: Cursor) -> bool:
    token = cursor.peek()
    return token is None or token.is_symbol(",") or token.is_symbol(")") or token.is_word(*_ENDS_OF_BARE_COLUMN)


def _comment(cursor: Cursor) -> str:
    return cursor.string().text if cursor.take("COMMENT") else ""


def _watermark(cursor: Cursor) -> WatermarkDefinition:
    cursor.need("WATERMARK")
    if not cursor.sees("FOR"):
        cursor.name("a watermark's name")
    cursor.need("FOR")
    column = name_term(cursor)
    cursor.need("AS")
    expression = parse_term(cursor)
    return WatermarkDefinition(column, expression, cursor.script.text[expression.span.start : expression.span.end])


def _distribution(cursor: Cursor) -> Distribution:
    kind = ""
    columns: tuple[NameTerm, ...] = ()
    if cursor.take("BY"):
        kind = next((word for word in ("HASH", "RANGE") if cursor.take(word)), "")
        columns = name_list(cursor)
    elif not cursor.sees("INTO"):
        raise cursor.expected_error("BY or INTO")
    buckets: int | None = None
    if cursor.take("INTO"):
        token = cursor.peek()
        if token is None or token.kind is not TokenKind.NUMBER or not token.text.isdecimal() or int(token.text) < 1:
            raise cursor.expected_error("a number of buckets")
        buckets = int(cursor.advance().text)
        cursor.need("BUCKETS")
    return Distribution(columns, buckets, kind)


def _like(cursor: Cursor) -> LikeClause:
    table: Path = parse_path(cursor, "a table's name")
    strategies: list[tuple[str, str, Span]] = []
    if cursor.take_symbol("("):
        while not cursor.sees_symbol(")"):
            start = cursor.here()
            strategy = next((word for word in _STRATEGIES if cursor.take(word)), None)
            if strategy is None:
                raise cursor.expected_error(" or ".join(_STRATEGIES))
            feature = next((word for word in _FEATURES if cursor.take(word)), None)
            if feature is None or (strategy == "OVERWRITING" and feature in _NOT_OVERWRITTEN):
                known = [word for word in _FEATURES if strategy != "OVERWRITING" or word not in _NOT_OVERWRITTEN]
                raise cursor.script.error(
                    "SQL_SYNTAX", f"{strategy} is followed by one of {', '.join(known)}.", cursor.since(start)
                )
            strategies.append((feature, strategy, cursor.since(start)))
        cursor.need_symbol(")")
    return LikeClause(table, tuple(strategies))
