"""The Avro schema of a table: given, or derived from the columns as Flink derives it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from millstream.model.errors import ExtraMissing
from millstream.streams.errors import JobError
from millstream.streams.plan.types import STRING, DataType, Field, TypeKind
from millstream.streams.spark.source.formats.body_format import DEBEZIUM_AVRO, BodyColumn, BodyFormat

__all__ = ["avro_fields", "given_schema", "is_framed", "parse_schema", "says_changes", "schema_of", "schema_text"]

_RECORD = "org.apache.flink.avro.generated.record"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MILLISECOND_PRECISION = 3
_DEFAULT_DECIMAL = (10, 0)
_REMEDY = "Rename the column, or use another format."

_PLAIN: dict[TypeKind, Any] = {
    TypeKind.NULL: "null",
    TypeKind.BOOLEAN: "boolean",
    TypeKind.TINYINT: "int",
    TypeKind.SMALLINT: "int",
    TypeKind.INT: "int",
    TypeKind.BIGINT: "long",
    TypeKind.FLOAT: "float",
    TypeKind.DOUBLE: "double",
    TypeKind.STRING: "string",
    TypeKind.BYTES: "bytes",
    TypeKind.DATE: {"type": "int", "logicalType": "date"},
    TypeKind.TIME: {"type": "int", "logicalType": "time-millis"},
}


def schema_text(text: BodyFormat) -> str:
    """The schema of the table's rows as JSON. Raises JobError JOB_FAILED for one that cannot be."""
    given = given_schema(text)
    if given is not None:
        return given
    local = text.option("timestamp_mapping.legacy", "true").lower() == "false"
    columns = _envelope(text.columns) if says_changes(text) else text.columns
    return msgspec.json.encode(schema_of(columns, local=local)).decode()


def is_framed(text: BodyFormat) -> bool:
    """Whether each message names its schema in a registry."""
    return text.name.endswith("-confluent")


def says_changes(text: BodyFormat) -> bool:
    """Whether a message is Debezium's envelope around rows."""
    return text.name == DEBEZIUM_AVRO


def _envelope(columns: Sequence[BodyColumn]) -> tuple[BodyColumn, ...]:
    row = DataType(TypeKind.ROW, fields=tuple(Field(column.name, column.type) for column in columns))
    return BodyColumn("before", row), BodyColumn("after", row), BodyColumn("op", STRING)


def given_schema(text: BodyFormat) -> str | None:
    """The schema of the option, which may name a file; None without one."""
    given = text.option("schema").strip()
    if not given:
        return None
    if given.startswith("{"):
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JobError("JOB_FAILED", f"The schema {given!r} cannot be read: {error}.") from None


def schema_of(columns: Sequence[BodyColumn], *, local: bool = False) -> dict[str, Any]:
    """The record that Flink makes of such columns; with `local` a TIMESTAMP is the logical type without a zone."""
    return _record([(column.name, column.type) for column in columns], _RECORD, local=local)


@lru_cache(maxsize=256)
def parse_schema(schema: str) -> Any:
    """The schema as fastavro works with it. Raises JobError JOB_FAILED for one that is none, ExtraMissing."""
    try:
        import fastavro
    except ImportError:
        raise ExtraMissing("The format avro", "fastavro", extra="formats") from None
    try:
        found = fastavro.parse_schema(msgspec.json.decode(schema))
    except (
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        msgspec.MsgspecError,
        ValueError,
    ) as error:
        raise JobError("JOB_FAILED", f"The Avro schema cannot be read: {error}.") from None
    if not isinstance(found, dict) or found.get("type") != "record":
        raise JobError("JOB_FAILED", "The Avro schema is no record, so it has no columns.")
    return found


def avro_fields(schema: Any) -> tuple[str, ...]:
    """The names of the fields of a parsed record."""
    return tuple(field["name"] for field in schema["fields"])


def _record(fields: Sequence[tuple[str, DataType]], name: str, *, local: bool) -> dict[str, Any]:
    made = []
    for field, kind in fields:
        if not _NAME.fullmatch(field):
            words = f"Avro has no field {field!r}: names are of letters, digits and _."
            raise JobError("JOB_FAILED", words, remedy=_REMEDY)
        made.append({"name": field, "type": _nullable(kind, f"{name}_{field}", local=local)} | _default(kind))
    return {"type": "record", "name": name, "fields": made}


def _default(kind: DataType) -> dict[str, Any]:
    return {"default": None} if kind.nullable else {}


def _nullable(kind: DataType, name: str, *, local: bool) -> Any:
    plain = _type(kind, name, local=local)
    return ["null", plain] if kind.nullable and plain != "null" else plain


def _type(kind: DataType, name: str, *, local: bool) -> Any:
    match kind.kind:
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMP_LTZ:
            precision = _MILLISECOND_PRECISION if kind.precision is None else kind.precision
            unit = "millis" if precision <= _MILLISECOND_PRECISION else "micros"
            zone = "local-" if local and kind.kind is TypeKind.TIMESTAMP else ""
            return {"type": "long", "logicalType": f"{zone}timestamp-{unit}"}
        case TypeKind.DECIMAL:
            precision, scale = _DEFAULT_DECIMAL
            digits = {"precision": kind.precision or precision, "scale": kind.scale or scale}
            return {"type": "bytes", "logicalType": "decimal", **digits}
        case TypeKind.ARRAY:
            return {"type": "array", "items": _nullable(kind.elements[0], f"{name}_item", local=local)}
        case TypeKind.MAP:
            key, value = kind.elements
            if key.kind is not TypeKind.STRING:
                raise JobError("JOB_FAILED", f"Avro has no {kind}: the keys of its maps are texts.", remedy=_REMEDY)
            return {"type": "map", "values": _nullable(value, f"{name}_value", local=local)}
        case TypeKind.ROW:
            return _record([(field.name, field.type) for field in kind.fields], name, local=local)
        case plain if plain in _PLAIN:
            return _PLAIN[plain]
    raise JobError("JOB_FAILED", f"Avro has no {kind}.", remedy=_REMEDY)
