"""Messages that name their schema in a registry, by its documented HTTP interface."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="needs the extra formats")

import pyarrow as pa
from typed_rows import read, table_of, written

from http_servers import Asked, Told, serving
from millstream.model.backoff import Backoff
from millstream.model.errors import Unreachable
from millstream.streams.errors import JobError
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import BIGINT, STRING, Field, Schema
from millstream.streams.spark.sinks.bodies import body_encoder
from millstream.streams.spark.source.formats import schema_registry
from millstream.streams.spark.source.formats.body_format import formats_of
from millstream.streams.spark.source.formats.keyed_rows import body_decoder
from millstream.streams.spark.source.formats.schema_registry import MISSING_FOR_S, CallRetries, SchemaRegistry

COLUMNS = {"a": BIGINT.as_nullable(False), "b": STRING.as_nullable(False)}
RECORD = {"type": "record", "name": "r", "fields": [{"name": "b", "type": "string"}, {"name": "a", "type": "long"}]}
BODY = bytes.fromhex("000000000706666f6f36")


class Registry:
    """Schemas by number, as the reference of Confluent's registry describes `/schemas/ids` and `/subjects`."""

    def __init__(self, schemas: dict[int, dict[str, Any]]) -> None:
        self.schemas = schemas
        self.subjects: dict[str, str] = {}

    def reply(self, asked: Asked) -> Told:
        if asked.method == "GET" and asked.path.startswith("/schemas/ids/"):
            found = self.schemas.get(int(asked.path.rpartition("/")[2]))
            if found is None:
                return Told(404, b'{"error_code":40403,"message":"Schema not found"}')
            return Told(200, json.dumps(found).encode())
        assert (asked.method, asked.headers["content-type"]) == ("POST", "application/vnd.schemaregistry.v1+json")
        self.subjects[asked.path] = json.loads(asked.body)["schema"]
        return Told(200, b'{"id":7}')


def table(address: str, **options: str) -> Table:
    named = {f"avro-confluent.{name.replace('__', '.').replace('_', '-')}": value for name, value in options.items()}
    return table_of({"format": "avro-confluent", "avro-confluent.url": address, **named}, COLUMNS)


def test_each_message_is_read_with_the_schema_that_it_names_and_a_schema_is_asked_for_once() -> None:
    registry = Registry({7: {"schema": json.dumps(RECORD)}})
    with serving(registry.reply) as server:
        source = table(server.address, basic_auth__user_info="u:p")
        assert read(source, [BODY, BODY]) == ([{"a": 27, "b": "foo"}] * 2, [])
        assert read(source, [BODY])[1] == []
    (asked,) = server.requests
    assert (asked.path, asked.headers["authorization"]) == ("/schemas/ids/7", "Basic dTpw")


def test_messages_without_a_schema_are_malformed_with_the_reason() -> None:
    registry = Registry({8: {"schema": "{}", "schemaType": "PROTOBUF"}, 9: {"schema": "{}", "references": [{}]}})
    bad = [b"", b"\x01\x00\x00\x00\x07x", b"\x00\x00\x00\x00\x05x", b"\x00\x00\x00\x00\x08x", b"\x00\x00\x00\x00\x09x"]
    with serving(registry.reply) as server:
        rows, malformed = read(table(server.address), [*bad, bad[2]])
    assert rows == []
    assert [reason for _, reason in malformed] == [
        "0 bytes are no message of a schema registry",
        "the first byte is 1, not 0 as in messages of a schema registry",
        "the registry has no schema 5",
        "the schema 8 is PROTOBUF, not AVRO",
        "the schema 9 is made of several, which are not read",
        "the registry has no schema 5",
    ]
    assert len(server.requests) == 3


def test_a_schema_that_is_written_is_registered_under_the_subject_of_the_topic() -> None:
    registry = Registry({})
    with serving(registry.reply) as server:
        bodies = written(table(server.address), [{"a": 27, "b": "foo"}, {"a": 27, "b": "foo"}])
        written(table(server.address, subject="my subject"), [{"a": 1, "b": ""}])
    assert bodies == [bytes.fromhex("00000000073606666f6f")] * 2
    assert list(registry.subjects) == ["/subjects/t-value/versions", "/subjects/my%20subject/versions"]
    names = [field["name"] for field in json.loads(registry.subjects["/subjects/t-value/versions"])["fields"]]
    assert names == ["a", "b"]


def test_a_registry_that_is_away_makes_no_message_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "_RETRIES", CallRetries(1, Backoff(0.0, 0.0)))
    with serving(lambda _: Told(503)) as server, pytest.raises(Unreachable):
        read(table(server.address), [BODY])
    with serving(lambda _: Told(401, b"who are you")) as server, pytest.raises(JobError, match="401: who are you"):
        read(table(server.address), [BODY])
    with serving(lambda _: Told(409, b"incompatible")) as server, pytest.raises(JobError, match="refuses the schema"):
        written(table(server.address), [{"a": 1, "b": ""}])


def test_a_schema_that_is_registered_late_is_found_after_a_while() -> None:
    registry, now = Registry({}), [100.0]
    with serving(registry.reply) as server:
        asked = SchemaRegistry(server.address, clock=lambda: now[0])
        for _ in range(2):
            with pytest.raises(ValueError, match="has no schema 7"):
                asked.schema(7)
        registry.schemas[7] = {"schema": json.dumps(RECORD)}
        now[0] += MISSING_FOR_S
        assert asked.schema(7)["name"] == "r"
    assert len(server.requests) == 2


ROW = {"type": "record", "name": "Value", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ],
}
DEBEZIUM = "debezium-avro-confluent"
ONE, TWO = "02" + "02" + "0261", "02" + "04" + "0262"
"""The rows (1, a) and (2, b), each as the second branch of its union."""


def envelope(rows: str, op: str) -> bytes:
    return bytes.fromhex("0000000007" + rows + "02") + op.encode()


def test_the_envelopes_of_debezium_are_rows_with_their_kinds() -> None:
    registry = Registry({7: {"schema": json.dumps(ENVELOPE)}})
    bodies = [
        envelope("00" + ONE, "r"), envelope(ONE + TWO, "u"), envelope(TWO + "00", "d"), b"",
        envelope("00" + TWO, "u"), envelope("0000", "t"), envelope("00" + ONE, "c"),
    ]  # fmt: skip
    with serving(registry.reply) as server:
        source = table_of({"format": DEBEZIUM, f"{DEBEZIUM}.url": server.address}, COLUMNS)
        fields = [(column.name, column.type) for column in source.physical]
        decoded = body_decoder(formats_of(source)[0], fields).decode(bodies)
    assert decoded.kinds is not None
    assert decoded.kept is not None
    rows = list(zip(decoded.kept.to_pylist(), decoded.kinds.to_pylist(), decoded.columns[0].to_pylist(), strict=True))
    new, before, after, gone = (kind.value for kind in RowKind)
    assert rows == [(0, new, 1), (1, before, 1), (1, after, 2), (2, gone, 2), (6, new, 1)]
    assert [bad.position for bad in decoded.malformed] == [4, 5]
    assert decoded.malformed[0].reason.startswith("before is null")
    assert decoded.malformed[1].reason == "op 't' is none of c, r, u, d"


def test_changes_are_written_as_envelopes_which_are_read_again() -> None:
    registry = Registry({})
    with serving(registry.reply) as server:
        target = table_of({"format": DEBEZIUM, f"{DEBEZIUM}.url": server.address}, COLUMNS)
        text = formats_of(target)[0]
        schema = Schema(tuple(Field(column.name, column.type) for column in target.physical))
        rows = pa.RecordBatch.from_pydict({"a": [1, 2, 2], "b": ["a", "b", "c"]})
        bodies = body_encoder(text, schema)(
            rows, [kind.value for kind in (RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER)]
        )
        registry.schemas[7] = {"schema": registry.subjects["/subjects/t-value/versions"]}
        decoded = body_decoder(text, [(column.name, column.type) for column in target.physical]).decode(bodies)
    assert decoded.malformed == ()
    assert [column.to_pylist() for column in decoded.columns] == [[1, 2, 2], ["a", "b", "c"]]
    assert decoded.kinds is not None
    assert decoded.kinds.to_pylist() == [RowKind.INSERT.value, RowKind.DELETE.value, RowKind.INSERT.value]
