"""How rows stand in messages: CSV, raw values, keys, and formats that say what changed."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.record import encode_record
from millstream.streams.errors import JobError
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.plan.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, DataType, Field, TypeKind
from millstream.streams.spark.source.data_source import encode_spec
from millstream.streams.spark.source.formats.body_format import formats_of
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.rows import RowBuilder
from millstream.streams.spark.source.spec import SourceColumn, SourceSpec

HOST = Address("127.0.0.1", 10911)
Row = tuple[object, ...]


def table_of(columns: dict[str, DataType], options: dict[str, str], key: tuple[str, ...] = ()) -> Table:
    connector = "upsert-rocketmq" if key else "rocketmq"
    physical = tuple(PhysicalColumn(name, kind) for name, kind in columns.items())
    return Table(
        "t",
        physical,
        {"connector": connector, "topic": "t", **options},
        primary_key=key,
        upserts=connector == "upsert-rocketmq",
    )


def record(body: bytes, key: str | None) -> memoryview:
    properties = {} if key is None else {"KEYS": key}
    stored = encode_record(
        OutgoingMessage("t", body, properties), queue_id=0, queue_offset=0, log_offset=0, store_timestamp_ms=1,
        store_host=HOST,
    )  # fmt: skip
    return memoryview(stored)


def read(
    source: Table, messages: Sequence[bytes | tuple[bytes, str | None]], *, changes: bool = False
) -> tuple[list[Row], list[tuple[int, str]]]:
    """Rows (with their kinds in front, if they change), and places and reasons of what is none."""
    body, key = formats_of(source)
    columns = tuple(SourceColumn(column.name, column.type) for column in source.physical)
    spec = SourceSpec(
        "n", "t", columns, Position(), body=body, key=key, changes=changes, upserts=source.connector != "rocketmq"
    )
    spec = msgspec.json.decode(encode_spec(spec), type=SourceSpec)
    pairs = [(one, None) if isinstance(one, bytes) else one for one in messages]
    batch, malformed = RowBuilder(spec).build([record(body, key) for body, key in pairs])
    kinds = ["+I", "-U", "+U", "-D"]
    rows = [
        (*((kinds[row["__kind"]],) if changes else ()), *(row[column.name] for column in columns))
        for row in batch.to_pylist()
    ]
    return rows, [(one.position, one.reason) for one in malformed]


WORDS = {"id": INT, "word": STRING, "ok": BOOLEAN}


def test_csv_fields_stand_by_their_place() -> None:
    rows, malformed = read(
        table_of(WORDS, {"format": "csv"}),
        [b"1,a,true", b'2,"b,""c""",false\n', b"3,,", b"x,d,true", b"4,e", b"5,f,true,more"],
    )
    assert rows == [(1, "a", True), (2, 'b,"c"', False), (3, "", None)]
    assert [place for place, _ in malformed] == [3, 4, 5]
    assert "2 fields, the table 3" in malformed[1][1]


def test_csv_takes_other_marks_comments_and_a_word_for_null() -> None:
    options = {
        "format": "csv",
        "csv.field-delimiter": "\\t",
        "csv.quote-character": "'",
        "csv.null-literal": "n/a",
        "csv.allow-comments": "true",
        "csv.array-element-delimiter": "|",
    }
    columns = {"word": STRING, "numbers": DataType(TypeKind.ARRAY, elements=(INT,))}
    rows, malformed = read(table_of(columns, options), [b"'a\tb'\t1|2", b"# not a row", b"n/a\tn/a"])
    assert (rows, malformed) == ([("a\tb", [1, 2]), (None, None)], [])


@pytest.mark.parametrize(
    ("kind", "options", "body", "value"),
    [
        (STRING, {}, "añ".encode(), "añ"),
        (DataType(TypeKind.BYTES), {}, b"\x00\xff", b"\x00\xff"),
        (INT, {}, b"\x00\x00\x01\x00", 256),
        (INT, {"raw.endianness": "little-endian"}, b"\x00\x01\x00\x00", 256),
        (BIGINT, {}, b"\xff" * 8, -1),
        (DOUBLE, {}, b"\x3f\xf8" + bytes(6), 1.5),
        (BOOLEAN, {}, b"\x01", True),
    ],
)
def test_a_raw_body_is_one_value(kind: DataType, options: dict[str, str], body: bytes, value: object) -> None:
    assert read(table_of({"v": kind}, {"format": "raw", **options}), [body]) == ([(value,)], [])


def test_a_raw_body_of_another_length_is_malformed_and_two_columns_are_refused() -> None:
    rows, malformed = read(table_of({"v": INT}, {"format": "raw"}), [b"abc", b"\x00\x00\x00\x01"])
    assert (rows, [place for place, _ in malformed]) == ([(1,)], [0])
    with pytest.raises(JobError, match="holds one"):
        formats_of(table_of(WORDS, {"format": "raw"}))


ROW = {"id": BIGINT, "name": STRING}

CHANGES = {
    "debezium-json": [
        b'{"before":null,"after":{"id":1,"name":"a"},"op":"c","ts_ms":5,"source":{"db":"x"}}',
        b'{"before":{"id":1,"name":"a"},"after":{"id":1,"name":"b"},"op":"u"}',
        b'{"before":{"id":1,"name":"b"},"after":null,"op":"d"}',
    ],
    "canal-json": [
        b'{"data":[{"id":"1","name":"a"}],"old":null,"type":"INSERT","database":"d","table":"t","isDdl":false}',
        b'{"data":[{"id":"1","name":"b"}],"old":[{"name":"a"}],"type":"UPDATE","database":"d","table":"t"}',
        b'{"data":[{"id":"1","name":"b"}],"old":null,"type":"DELETE","database":"d","table":"t"}',
    ],
    "maxwell-json": [
        b'{"database":"d","table":"t","type":"insert","ts":1,"data":{"id":1,"name":"a"}}',
        b'{"database":"d","table":"t","type":"update","data":{"id":1,"name":"b"},"old":{"name":"a"}}',
        b'{"database":"d","table":"t","type":"delete","data":{"id":1,"name":"b"}}',
    ],
    "changelog-json": [
        b'{"op":"+I","data":{"id":1,"name":"a"}}',
        b'{"op":"-U","data":{"id":1,"name":"a"}}',
        b'{"op":"+U","data":{"id":1,"name":"b"}}',
        b'{"op":"-D","data":{"id":1,"name":"b"}}',
    ],
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_insert_an_update_and_a_deletion_become_rows_with_kinds(name: str) -> None:
    rows, malformed = read(table_of(ROW, {"format": name}), CHANGES[name], changes=True)
    assert rows == [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-D", 1, "b")]
    assert malformed == []


def test_debezium_brings_its_schema_and_a_snapshot() -> None:
    body = b'{"schema":{"type":"struct"},"payload":{"before":null,"after":{"id":2,"name":"s"},"op":"r"}}'
    options = {"format": "debezium-json", "debezium-json.schema-include": "true"}
    assert read(table_of(ROW, options), [body], changes=True) == ([("+I", 2, "s")], [])


def test_an_update_without_the_row_before_is_malformed_and_says_what_to_set() -> None:
    body = b'{"before":null,"after":{"id":1,"name":"b"},"op":"u"}'
    rows, malformed = read(table_of(ROW, {"format": "debezium-json"}), [body], changes=True)
    assert rows == []
    assert "REPLICA IDENTITY FULL" in malformed[0][1]


def test_an_update_of_which_one_row_does_not_fit_is_left_out_whole() -> None:
    bodies = [b'{"op":"u","before":{"id":"x"},"after":{"id":2,"name":"b"}}', *CHANGES["debezium-json"][:1]]
    rows, malformed = read(table_of(ROW, {"format": "debezium-json"}), bodies, changes=True)
    assert rows == [("+I", 1, "a")]
    assert [place for place, _ in malformed] == [0]


def test_canal_is_read_of_the_wanted_tables_alone_and_without_definitions() -> None:
    options = {"format": "canal-json", "canal-json.table.include": "t|u", "canal-json.database.include": "d.*"}
    bodies = [
        b'{"data":[{"id":1},{"id":2}],"type":"INSERT","database":"db","table":"u"}',
        b'{"data":[{"id":3}],"type":"INSERT","database":"db","table":"other"}',
        b'{"data":[{"id":4}],"type":"INSERT","database":"x","table":"t"}',
        b'{"data":null,"type":"ALTER","isDdl":true,"database":"db","table":"t"}',
        b'{"data":[{"id":5}],"type":"TRUNCATE","database":"db","table":"t"}',
    ]
    rows, malformed = read(table_of(ROW, options), bodies, changes=True)
    assert rows == [("+I", 1, None), ("+I", 2, None)]
    assert [place for place, _ in malformed] == [4]


def test_the_last_message_of_a_key_counts_and_one_without_a_body_deletes() -> None:
    source = table_of(ROW, {}, ("id",))
    rows, malformed = read(
        source,
        [
            (b'{"id":1,"name":"a"}', '{"id":1}'),
            (b"", '{"id":1}'),
            (b"null", '{"id":2}'),
            (b"", None),
            (b"not json", '{"id":3}'),
        ],
        changes=True,
    )
    assert rows == [("+U", 1, "a"), ("-D", 1, None), ("-D", 2, None)]
    assert [place for place, _ in malformed] == [3, 4]


def test_columns_of_the_key_alone_are_read_from_the_key() -> None:
    options = {
        "key.format": "json",
        "key.fields": "k_id",
        "key.fields-prefix": "k_",
        "value.fields-include": "EXCEPT_KEY",
    }
    source = table_of({"k_id": INT, "name": STRING}, options)
    rows, malformed = read(source, [(b'{"name":"a"}', '{"id":7}'), (b'{"name":"b"}', "seven")])
    assert rows == [(7, "a")]
    assert [place for place, _ in malformed] == [1]


def test_a_field_that_must_be_there_is_missed() -> None:
    options = {"json.fail-on-missing-field": "true"}
    rows, malformed = read(table_of(ROW, options), [b'{"id":1,"name":null}', b'{"id":2}'])
    assert rows == [(1, None)]
    assert "missing required field `name`" in malformed[0][1]


def test_a_row_of_csv_is_cut_at_the_element_mark() -> None:
    pair = DataType(TypeKind.ROW, fields=(Field("a", INT), Field("b", STRING)))
    rows, _ = read(table_of({"p": pair}, {"format": "csv"}), [b"1;x"])
    assert json.loads(json.dumps(rows)) == [[{"a": 1, "b": "x"}]]
