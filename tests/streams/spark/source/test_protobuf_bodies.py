"""Protocol Buffers in messages: what they say byte by byte, and every type there and back."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc_tools.protoc", reason="needs protoc, which grpcio-tools brings")

from grpc_tools import protoc
from hypothesis import HealthCheck, given, settings
from typed_rows import ROWS, read, table_of, written

from millstream.streams.errors import JobError
from millstream.streams.plan.types import BIGINT, BOOLEAN, INT, STRING, DataType, Field, TypeKind

PROTO = """
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
enum Colour { NONE = 0; RED = 1; }
message Inner { optional int64 n = 1; repeated string words = 2; }
message Everything {
  optional bool flag = 1; optional int32 tiny = 2; optional sint32 small = 3; optional int32 number = 4;
  optional int64 big = 5; optional float single = 6; optional double double = 7; optional string price = 8;
  optional string word = 9; optional bytes raw = 10; optional string day = 11; optional int32 clock = 12;
  google.protobuf.Timestamp at = 13; google.protobuf.Timestamp exactly = 14; optional string instant = 15;
  repeated int32 list = 16; map<string, int64> map = 17; Inner inner = 18;
}
message Test { optional int32 a = 1; optional string b = 2; }
message More {
  int32 plain = 1; optional Colour colour = 2; Colour number = 3; repeated Inner inners = 4;
  map<int32, Inner> named = 5; google.protobuf.Timestamp at = 6; optional uint64 big = 7; repeated string texts = 8;
}
"""


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("proto")
    (directory / "shop.proto").write_text(PROTO)
    known = Path(protoc.__file__).parent / "_proto"
    out = directory / "shop.desc"
    arguments = [
        "protoc",
        f"-I{directory}",
        f"-I{known}",
        "--include_imports",
        f"--descriptor_set_out={out}",
        "shop.proto",
    ]
    assert protoc.main(arguments) == 0
    return out


def options(descriptors: Path, message: str, **more: str) -> dict[str, str]:
    named = {f"protobuf.{name.replace('_', '-')}": value for name, value in more.items()}
    return {
        "format": "protobuf",
        "protobuf.descriptor-file": str(descriptors),
        "protobuf.message-name": f"shop.v1.{message}",
        **named,
    }


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_rows_of_all_types_come_back_as_they_were(descriptors: Path, rows: list[dict[str, Any]]) -> None:
    table = table_of(options(descriptors, "Everything"))
    assert read(table, written(table, rows)) == (rows, [])


def test_a_message_is_written_as_the_documentation_has_it(descriptors: Path) -> None:
    # Protocol Buffers, "Encoding": a = 150 is 08 96 01, b = "testing" is 12 07 74 65 73 74 69 6e 67.
    table = table_of(options(descriptors, "Test"), {"b": STRING, "a": INT})
    bodies = [bytes.fromhex("089601"), bytes.fromhex("120774657374696e67")]
    assert written(table, [{"a": 150}, {"b": "testing"}]) == bodies
    assert read(table, bodies) == ([{"b": None, "a": 150}, {"b": "testing", "a": None}], [])
    assert read(table, bodies, "a") == ([{"a": 150}, {"a": None}], [])


def test_what_is_not_in_a_message_is_null_or_its_default_value(descriptors: Path) -> None:
    columns = {
        "plain": INT,
        "colour": STRING,
        "texts": DataType(TypeKind.ARRAY, elements=(STRING,)),
        "at": DataType(TypeKind.TIMESTAMP, precision=3),
        "big": BIGINT,
    }
    nothing = dict.fromkeys(columns)
    assert read(table_of(options(descriptors, "More"), columns), [b""]) == ([{**nothing, "plain": 0}], [])
    filled = table_of(options(descriptors, "More", read_default_values="true"), columns)
    assert read(filled, [b""])[0] == [{"plain": 0, "colour": "NONE", "texts": [], "at": None, "big": 0}]


def test_enums_messages_in_lists_and_maps_and_times_are_read_and_written(descriptors: Path) -> None:
    inner = DataType(TypeKind.ROW, fields=(Field("n", BIGINT),))
    columns = {
        "colour": STRING,
        "number": INT,
        "inners": DataType(TypeKind.ARRAY, elements=(inner,)),
        "named": DataType(TypeKind.MAP, elements=(INT, inner)),
        "at": DataType(TypeKind.TIMESTAMP_LTZ, precision=6),
    }
    moment = datetime.datetime(1969, 12, 31, 23, 59, 59, 250_001, tzinfo=datetime.UTC)
    row = {"colour": "RED", "number": 1, "inners": [{"n": 1}, {"n": None}], "named": [(5, {"n": 2})], "at": moment}
    table = table_of(options(descriptors, "More"), columns)
    assert read(table, written(table, [row])) == ([row], [])


def test_null_among_texts_is_what_the_option_says(descriptors: Path) -> None:
    texts = DataType(TypeKind.ARRAY, elements=(STRING,))
    table = table_of(options(descriptors, "More", write_null_string_literal="n/a"), {"texts": texts})
    assert read(table, written(table, [{"texts": ["a", None]}])) == ([{"texts": ["a", "n/a"]}], [])


def test_bodies_that_are_no_message_are_told_and_the_others_are_read(descriptors: Path) -> None:
    table = table_of(options(descriptors, "Test"), {"a": INT})
    rows, malformed = read(table, [b"\x08", bytes.fromhex("089601"), b"\xff\xff\xff"])
    assert rows == [{"a": 150}]
    assert [place for place, _ in malformed] == [0, 2]
    assert malformed[0][1].startswith("no message shop.v1.Test: ")


def test_a_number_that_the_column_does_not_hold_is_malformed(descriptors: Path) -> None:
    table = table_of(options(descriptors, "More"), {"big": BIGINT})
    # Field 7 with 2^64 - 1, ten bytes of seven bits.
    rows, malformed = read(table, [b"\x38" + b"\xff" * 9 + b"\x01", b"\x38\x05"])
    assert rows == [{"big": 5}]
    assert "18446744073709551615 is no integer of 64 bits" in malformed[0][1]


@pytest.mark.parametrize(
    ("message", "columns", "said"),
    [
        ("Test", {"c": INT}, "has no field c.*It has a, b"),
        ("Test", {"a": DataType(TypeKind.ARRAY, elements=(INT,))}, "a is one value, the column ARRAY<INT>"),
        ("More", {"texts": STRING}, "texts is repeated, the column STRING"),
        ("More", {"named": BOOLEAN}, "named is a map, the column BOOLEAN"),
        ("More", {"at": INT}, "at is a message google.protobuf.Timestamp, the column INT"),
        ("Tets", {"a": INT}, 'has no message shop.v1.Tets.*Did you mean "shop.v1.Test"'),
    ],
)  # fmt: skip
def test_columns_that_are_not_in_the_message_are_refused_before_the_first_row(
    descriptors: Path, message: str, columns: dict[str, DataType], said: str
) -> None:
    with pytest.raises(JobError, match=said):
        read(table_of(options(descriptors, message), columns), [])


def test_a_file_that_is_none_of_descriptors_is_named(descriptors: Path, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"descriptors of t cannot be read: .*No such file"):
        read(table_of(options(tmp_path / "none", "Test"), {"a": INT}), [])
    (tmp_path / "text").write_bytes(b"\xff\xff not this")
    with pytest.raises(JobError, match="is no set of descriptors"):
        read(table_of(options(tmp_path / "text", "Test"), {"a": INT}), [])


def test_a_value_that_the_field_does_not_take_is_an_error_of_the_sink(descriptors: Path) -> None:
    with pytest.raises(JobError, match=r"A value of a does not fit shop\.v1\.Test") as caught:
        written(table_of(options(descriptors, "Test"), {"a": BIGINT}), [{"a": 1 << 40}])
    assert caught.value.name == "SINK_FAILED"
