"""The names and types in a declaration of columns, and which later declarations the files of a copy fit.

Told without pyarrow, so that a command refuses by the rule of the copy wherever it runs.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from millstream.model.errors import MillstreamError
from millstream.streams.errors import SqlError
from millstream.streams.plan.types import DEFAULT_DECIMAL, DataType, TypeKind
from millstream.streams.sql.parser.grammar import cursor_of
from millstream.streams.sql.parser.type_parser import parse_type
from millstream.streams.sql.syntax.script import Script

__all__ = [
    "MAX_COLUMNS",
    "MESSAGE_COLUMN_NAMES",
    "ColumnFields",
    "check_change",
    "check_declared",
    "check_fields",
    "columns_refused",
    "read_fields",
]

ColumnFields: TypeAlias = tuple[tuple[str, DataType], ...]
"""Columns by name and type, in the order of their declaration."""


MAX_COLUMNS: Final = 1000
"""Columns that a topic declares at most."""

MESSAGE_COLUMN_NAMES: Final = (
    "_broker", "_queue_id", "_queue_offset", "_stored_at", "_born_at", "_message_id", "_keys", "_tag", "_properties",
    "_problem", "_body",
)  # fmt: skip
"""The columns of every copy, before the declared ones."""

_UNKNOWN_TO_TABLES: Final = (TypeKind.NULL, TypeKind.INTERVAL_DAY, TypeKind.INTERVAL_YEAR, TypeKind.VARIANT)


def read_fields(text: str) -> ColumnFields:
    """The columns as between the brackets of CREATE TABLE: `id BIGINT, name STRING`. Raises COLUMNS_REFUSED."""
    try:
        cursor = cursor_of(Script(text))
        fields: list[tuple[str, DataType]] = []
        while True:
            name = cursor.name("a column's name").text
            fields.append((name, parse_type(cursor)))
            if not cursor.take_symbol(","):
                break
        if not cursor.at_end:
            raise cursor.expected_error("a comma or the end")
    except SqlError as error:
        raise columns_refused(f"{text[:200]!r}: {error.message.removesuffix('.')}") from None
    return tuple(fields)


def check_declared(columns: str, accepted: str) -> None:
    """Refuse a declaration that cannot be read, or that files with the accepted columns do not fit: COLUMNS_REFUSED.

    `accepted` is blank where there are no files.
    """
    new = read_fields(columns)
    check_fields(new)
    if accepted:
        check_change(read_fields(accepted), new)


def check_fields(fields: ColumnFields) -> None:
    """Refuse columns that no table can have beside those of every copy: COLUMNS_REFUSED."""
    names = [name.lower() for name, _ in fields]
    _check_names("two columns", names)
    own = next((name for name in names if name in MESSAGE_COLUMN_NAMES), None)
    if own is not None:
        raise columns_refused(f"{own!r} is a column of every copy")
    if len(fields) > MAX_COLUMNS:
        raise columns_refused(f"{len(fields)} columns are more than {MAX_COLUMNS}")
    for name, data_type in fields:
        if data_type.holds(*_UNKNOWN_TO_TABLES):
            raise columns_refused(f"{name} is {data_type}, which tables do not have")
        _check_fields_within(name, data_type)


def check_change(old: ColumnFields, new: ColumnFields) -> None:
    """Refuse columns that files with the old ones do not fit: COLUMNS_REFUSED.

    What is added fits, also within a ROW. What is left out, and a type that is another one, does not.
    """
    columns = dict(new)
    for name, data_type in old:
        if name not in columns:
            raise columns_refused(f"the column {name} is left out, which the files have", f"Declare {name} as well")
        _check_type(name, data_type, columns[name])


def columns_refused(why: str, remedy: str = "") -> MillstreamError:
    """The refusal of a declaration; `remedy` where there is a better one than the catalogue's."""
    words = f"{remedy} (docs/tiered-storage.md)." if remedy else None
    return MillstreamError("COLUMNS_REFUSED", f"The declared columns cannot be copied: {why}.", remedy=words)


def _check_fields_within(path: str, data_type: DataType) -> None:
    """Refuse a ROW, however deep, two of whose fields readers cannot tell apart: COLUMNS_REFUSED."""
    _check_names(f"two fields of {path}", [field.name.lower() for field in data_type.fields])
    for field in data_type.fields:
        _check_fields_within(f"{path}.{field.name}", field.type)
    for element in data_type.elements:
        _check_fields_within(f"{path}[]", element)


def _check_names(what: str, names: list[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise columns_refused(f"{what} are called {twice!r}, and readers of tables take case for nothing")


def _check_type(path: str, old: DataType, new: DataType) -> None:
    if not _is_same(old, new):
        raise columns_refused(
            f"the column {path} was {old} and is {new} now",
            f"Declare {path} as {old} again, and a column of another name as {new}",
        )
    for before, now in zip(old.elements, new.elements, strict=True):
        _check_type(f"{path}[]", before, now)
    fields = {one.name: one.type for one in new.fields}
    for field in old.fields:
        name = f"{path}.{field.name}"
        if field.name not in fields:
            raise columns_refused(f"the field {name} is left out, which the files have", f"Declare {name} as well")
        _check_type(name, field.type, fields[field.name])


def _is_same(old: DataType, new: DataType) -> bool:
    """Whether files have both alike, but for what is inside."""
    same = old.kind is new.kind and len(old.elements) == len(new.elements)
    return same and (old.kind is not TypeKind.DECIMAL or _digits(old) == _digits(new))


def _digits(decimal: DataType) -> tuple[int, int]:
    precision, scale = DEFAULT_DECIMAL
    return decimal.precision or precision, decimal.scale or scale
