"""The formats of a table's messages: of the body, and of the key."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from millstream.streams.connectors.options import from_environment
from millstream.streams.errors import JobError
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import DataType

__all__ = ["CHANGELOG_FORMATS", "DEBEZIUM_AVRO", "BodyColumn", "BodyFormat", "KeyFormat", "formats_of"]

DEBEZIUM_AVRO: Final = "debezium-avro-confluent"
"""Debezium's envelope in Avro, with a schema registry."""

CHANGELOG_FORMATS: Final = ("debezium-json", "canal-json", "maxwell-json", "changelog-json", DEBEZIUM_AVRO)
"""Formats whose bodies say what changed."""


@dataclass(frozen=True, slots=True)
class BodyColumn:
    """A column by the name that it has in the message, which may be shorter than the table's."""

    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class BodyFormat:
    """A format by name with the options of the table, and all columns that stand in the text, in their order."""

    name: str = "json"
    columns: tuple[BodyColumn, ...] = ()
    options: dict[str, str] = field(default_factory=dict)

    def option(self, name: str, default: str = "") -> str:
        """The value of the format's own option, without the format's name before it."""
        return self.options.get(f"{self.name}.{name}", default)

    def is_set(self, name: str) -> bool:
        """Whether a flag of the format is true."""
        return self.option(name, "false").lower() == "true"


@dataclass(frozen=True, slots=True)
class KeyFormat:
    """What the message's key holds: `names` are the table's columns, those of `text` the same under the key's names.

    With `in_body` they stand in the body as well.
    """

    text: BodyFormat
    names: tuple[str, ...]
    in_body: bool = True


def formats_of(table: Table) -> tuple[BodyFormat, KeyFormat | None]:
    """What a table's options say. Raises JobError JOB_FAILED where its columns do not fit the format."""
    options = table.options
    key = _key_format(table)
    beside = () if key is None or key.in_body else key.names
    columns = tuple(BodyColumn(column.name, column.type) for column in table.physical if column.name not in beside)
    name = options.get("format", "json").lower()
    if name == "raw" and len(columns) != 1:
        words = f"The table {table.name} has {len(columns)} columns in its body; the format raw holds one."
        raise JobError("JOB_FAILED", words, remedy="Use another format, or METADATA columns for the rest.")
    return checked_format(BodyFormat(name, columns, dict(options)), table.name), key


def checked_format(text: BodyFormat, table: str) -> BodyFormat:
    """The format with what its options name beside themselves: schemas and secrets, which workers might not find.

    Raises JobError JOB_FAILED where the columns cannot be in such a message.
    """
    match text.name:
        case "avro" | "avro-confluent" | "debezium-avro-confluent":
            from millstream.streams.spark.source.formats.avro_schema import parse_schema, schema_text

            schema = schema_text(text)
            parse_schema(schema)
            secret = f"{text.name}.basic-auth.user-info"
            try:
                resolved = {secret: from_environment(text.options[secret])} if secret in text.options else {}
            except KeyError as missing:
                words = f"The environment has no {missing.args[0]}, which '{secret}' of {table} names."
                raise JobError("JOB_FAILED", words) from None
            return replace(text, options={**text.options, f"{text.name}.schema": schema, **resolved})
        case "protobuf":
            from millstream.streams.spark.source.formats.protobuf_types import with_descriptors

            return with_descriptors(text, table)
        case _:
            return text


def _key_format(table: Table) -> KeyFormat | None:
    options = table.options
    if table.upserts:
        names, default = table.primary_key, "json"
    else:
        names, default = tuple(name for name in options.get("key.fields", "").split(";") if name), "raw"
    if not names:
        return None
    prefix = options.get("key.fields-prefix", "")
    types = {column.name: column.type for column in table.physical}
    unknown = [name for name in names if name not in types]
    if unknown:
        raise JobError("JOB_FAILED", f"The table {table.name} has no column {unknown[0]!r} in its data for the key.")
    columns = tuple(BodyColumn(name.removeprefix(prefix), types[name]) for name in names)
    text = options.get("key.format", default).lower()
    if text == "raw" and len(columns) != 1:
        words = f"The key of the table {table.name} has {len(columns)} columns; the format raw holds one."
        raise JobError("JOB_FAILED", words, remedy="Set 'key.format' = 'json'.")
    in_body = options.get("value.fields-include", "ALL").upper() == "ALL"
    return KeyFormat(BodyFormat(text, columns, dict(options)), tuple(names), in_body)
