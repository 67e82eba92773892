"""Whether a column of a database can hold the values of a declared type."""

from __future__ import annotations

import re
from collections.abc import Mapping

from millstream.streams.plan.types import DataType, TypeKind

__all__ = ["holds", "is_day", "is_moment", "is_text", "is_whole"]

_INTEGERS = frozenset(("tinyint", "smallint", "mediumint", "int", "integer", "bigint", "int2", "int4", "int8"))
_FRACTIONS = frozenset(("decimal", "numeric", "float", "double", "double precision", "real", "number"))
_TEXTS = frozenset(
    (
        "char",
        "character",
        "varchar",
        "character varying",
        "text",
        "tinytext",
        "mediumtext",
        "longtext",
        "bpchar",
        "name",
    )
)
_DOCUMENTS = frozenset(("json", "jsonb"))
_FLAGS = frozenset(("boolean", "bool", "bit"))
_BYTES = frozenset(("bytea", "blob", "tinyblob", "mediumblob", "longblob", "binary", "varbinary"))
_MOMENTS = frozenset(("timestamp", "datetime", "timestamp without time zone", "timestamp with time zone"))
_CLOCKS = frozenset(("time", "time without time zone"))
_DAYS = frozenset(("date",))
_KNOWN = _INTEGERS | _FRACTIONS | _TEXTS | _DOCUMENTS | _FLAGS | _BYTES | _MOMENTS | _CLOCKS | _DAYS

_WHOLE = _INTEGERS | _FRACTIONS
_HOLDERS: Mapping[TypeKind, frozenset[str]] = {
    TypeKind.BOOLEAN: _FLAGS | {"tinyint"},
    TypeKind.TINYINT: _WHOLE,
    TypeKind.SMALLINT: _WHOLE,
    TypeKind.INT: _WHOLE,
    TypeKind.BIGINT: _WHOLE,
    TypeKind.FLOAT: _FRACTIONS,
    TypeKind.DOUBLE: _FRACTIONS,
    TypeKind.DECIMAL: _FRACTIONS | _TEXTS,
    TypeKind.STRING: _TEXTS | _DOCUMENTS,
    TypeKind.BYTES: _BYTES,
    TypeKind.DATE: _DAYS | _MOMENTS | _TEXTS,
    TypeKind.TIME: _CLOCKS | _TEXTS,
    TypeKind.TIMESTAMP: _MOMENTS | _TEXTS,
    TypeKind.TIMESTAMP_LTZ: _MOMENTS | _TEXTS,
    TypeKind.ARRAY: _DOCUMENTS | _TEXTS,
    TypeKind.MAP: _DOCUMENTS | _TEXTS,
    TypeKind.ROW: _DOCUMENTS | _TEXTS,
}


def holds(stored: str, declared: DataType) -> bool:
    """Whether values of `declared` go into a column of the type `stored`, in a database's words.

    A word that is not known here (enum, uuid, inet, a type of the user's) is given the benefit of the doubt; an array
    of the database is none that a job can write.
    """
    if stored.endswith("[]"):
        return False
    word = _word(stored)
    return word not in _KNOWN or word in _HOLDERS.get(declared.kind, _KNOWN)


def is_whole(stored: str) -> bool:
    """Whether the type has whole numbers and nothing else."""
    return _word(stored) in _INTEGERS


def is_text(stored: str) -> bool:
    """Whether the type has texts."""
    return _word(stored) in _TEXTS


def is_day(stored: str) -> bool:
    """Whether the type has dates without a time."""
    return _word(stored) in _DAYS


def is_moment(stored: str) -> bool:
    """Whether the type has dates with a time."""
    return _word(stored) in _MOMENTS


def _word(stored: str) -> str:
    """The type without lengths and marks."""
    return " ".join(re.sub(r"\([^)]*\)|unsigned|zerofill", " ", stored).split())
