"""Message types from descriptors, in a pool per table so that names never collide."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from millstream.streams.errors import JobError
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.source.formats.body_format import BodyFormat
from millstream.streams.sql.syntax.script import did_you_mean

__all__ = ["TIMESTAMP", "FieldType", "MessageType", "is_map", "message_class", "with_descriptors"]

TIMESTAMP: Final = "google.protobuf.Timestamp"

FieldType = Any
"""The descriptor of a field: each implementation of the package has a class of its own for them."""

MessageType = Any
"""The descriptor of a message."""

_CONTENT: Final = "protobuf.descriptor-content"
"""The file's content as base64, beside the options of the table: workers need no file."""

_CACHED_CLASSES = 64
_REMEDY = "Make it with protoc --include_imports --descriptor_set_out."


def with_descriptors(text: BodyFormat, table: str) -> BodyFormat:
    """The format with the content of its descriptor file. Raises JobError JOB_FAILED where a column is not in it."""
    path = Path(text.option("descriptor-file"))
    try:
        content = base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise JobError("JOB_FAILED", f"The descriptors of {table} cannot be read: {error}.") from None
    found = replace(text, options={**text.options, _CONTENT: content})
    columns = [(column.name, column.type) for column in text.columns]
    _check(message_class(found).DESCRIPTOR, columns, f"The message {text.option('message-name')} of {table}")
    return found


def message_class(text: BodyFormat) -> type[Message]:
    """The class of the table's messages. Raises JobError JOB_FAILED for descriptors that do not have it."""
    return _class(text.options[_CONTENT], text.option("message-name"))


def is_map(field: FieldType) -> bool:
    """Whether the field is a map."""
    kind = field.message_type
    return kind is not None and bool(kind.GetOptions().map_entry)


@lru_cache(maxsize=_CACHED_CLASSES)
def _class(content: str, name: str) -> type[Message]:
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(base64.b64decode(content))
    except DecodeError:
        words = "The descriptor file is no set of descriptors."
        raise JobError("JOB_FAILED", words, remedy=_REMEDY) from None
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        found = pool.FindMessageTypeByName(name)
    except KeyError:
        known = [f"{file.package}.{kind.name}".lstrip(".") for file in files.file for kind in file.message_type]
        words = f"The descriptor file has no message {name}, or not all that it imports."
        remedy = did_you_mean(name, known) or f"Messages: {', '.join(known[:20])}; protoc needs --include_imports."
        raise JobError("JOB_FAILED", words, remedy=remedy) from None
    except TypeError as error:
        words = f"The descriptor file cannot be used: {error}."
        raise JobError("JOB_FAILED", words, remedy=_REMEDY) from None
    return message_factory.GetMessageClass(found)


def _check(message: MessageType, columns: Sequence[tuple[str, DataType]], where: str) -> None:
    for name, kind in columns:
        field = message.fields_by_name.get(name)
        if field is None:
            remedy = did_you_mean(name, list(message.fields_by_name)) or f"It has {', '.join(message.fields_by_name)}."
            raise JobError("JOB_FAILED", f"{where} has no field {name}.", remedy=remedy)
        _check_type(field, kind, f"{where}: {name}")


def _check_type(field: FieldType, kind: DataType, where: str) -> None:
    if is_map(field):
        entry = field.message_type.fields_by_name
        _require(kind.kind is TypeKind.MAP, where, kind, "a map")
        _check_single(entry["key"], kind.elements[0], f"{where}, key")
        _check_single(entry["value"], kind.elements[1], f"{where}, value")
    elif field.is_repeated:
        _require(kind.kind is TypeKind.ARRAY, where, kind, "repeated")
        _check_single(field, kind.elements[0], where)
    else:
        _check_single(field, kind, where)


def _check_single(field: FieldType, kind: DataType, where: str) -> None:
    message = field.message_type
    nested = kind.kind in (TypeKind.ARRAY, TypeKind.MAP, TypeKind.ROW)
    if message is None:
        _require(not nested, where, kind, "one value")
    elif message.full_name == TIMESTAMP and kind.is_timestamp:
        return
    else:
        _require(kind.kind is TypeKind.ROW, where, kind, f"a message {message.full_name}")
        _check(message, [(part.name, part.type) for part in kind.fields], where)


def _require(holds: bool, where: str, kind: DataType, field: str) -> None:
    if not holds:
        raise JobError("JOB_FAILED", f"{where} is {field}, the column {kind}.")
