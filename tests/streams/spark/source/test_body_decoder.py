"""JSON bodies to columns, as Flink's JSON format reads them."""

from __future__ import annotations

import datetime
import decimal
import json

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.plan.types import DOUBLE, INT, STRING, DataType, Field, TypeKind
from millstream.streams.spark.source.formats.decoder import JsonDecoder

_TIME = DataType(TypeKind.TIMESTAMP, precision=3)


def decoded(data_type: DataType, *values: object) -> tuple[list[object], list[int]]:
    """The values that one column takes of JSON values, and the places of the malformed ones."""
    bodies = [json.dumps({"x": value}).encode() for value in values]
    rows = JsonDecoder([("x", data_type)]).decode(bodies)
    return rows.columns[0].to_pylist(), [malformed.position for malformed in rows.malformed]


def test_a_string_takes_any_value_as_text() -> None:
    taken, malformed = decoded(STRING, "a", 1, 2.5, True, None, {"b": [1]}, ["c"])
    assert taken == ["a", "1", "2.5", "true", None, '{"b":[1]}', '["c"]']
    assert malformed == []


def test_numbers_are_taken_from_text_too() -> None:
    assert decoded(INT, 1, "2", None) == ([1, 2, None], [])
    assert decoded(DOUBLE, 1, "2.5") == ([1.0, 2.5], [])


@pytest.mark.parametrize("value", [True, "x", {"a": 1}, [1], 2**31])
@pytest.mark.parametrize("neighbours", [(), (1,), ("1",)])
def test_what_is_no_integer_is_malformed_whatever_stands_beside_it(
    value: object, neighbours: tuple[object, ...]
) -> None:
    taken, malformed = decoded(INT, *neighbours, value)
    assert taken == [1] * len(neighbours)
    assert malformed == [len(neighbours)]


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        (INT, {"1": 1, "-2": -2}),
        (DataType(TypeKind.DECIMAL, precision=3, scale=1), {"1.5": decimal.Decimal("1.5")}),
        (DataType(TypeKind.DATE), {"2026-01-02": datetime.date(2026, 1, 2)}),
        (STRING, {"": "", "1": "1"}),
    ],
)
def test_a_key_of_a_map_is_read_as_a_value_of_its_type_is(key: DataType, keys: dict[str, object]) -> None:
    kind = DataType(TypeKind.MAP, elements=(key, STRING))
    assert decoded(kind, dict.fromkeys(keys, "x"), None) == ([[(of, "x") for of in keys.values()], None], [])


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (INT, "one"),
        (DataType(TypeKind.DECIMAL, precision=3, scale=1), "1000"),
        (DataType(TypeKind.ROW, fields=(Field("a", INT),)), "a"),
    ],
)
def test_a_body_whose_map_has_a_key_that_does_not_fit_is_malformed_and_costs_its_neighbours_nothing(
    key: DataType, name: str
) -> None:
    kind = DataType(TypeKind.MAP, elements=(key, STRING))
    assert decoded(kind, {}, {name: "x"}, {}) == ([[], []], [1])


def test_names_that_are_one_key_of_a_map_are_in_it_once() -> None:
    assert decoded(DataType(TypeKind.MAP, elements=(INT, INT)), {"1": 2, "01": 3}) == ([[(1, 3)]], [])


def test_times_are_read_in_both_spellings_to_the_millisecond() -> None:
    taken, malformed = decoded(_TIME, "2026-01-02 03:04:05.678901", "2026-01-02T03:04:05Z")
    assert [value.replace(tzinfo=None) for value in taken if isinstance(value, datetime.datetime)] == [
        datetime.datetime(2026, 1, 2, 3, 4, 5, 678000),
        datetime.datetime(2026, 1, 2, 3, 4, 5),
    ]
    assert malformed == []


@pytest.mark.parametrize(
    "value", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "0000-06-01 00:00:00", "10000-01-01 00:00:00"]
)
@pytest.mark.parametrize("neighbours", [(), (None,), ("0001-01-01 00:00:00", "9999-12-31T23:59:59.999Z")])
def test_a_time_of_a_year_before_1_or_behind_9999_is_malformed_whatever_stands_beside_it(
    value: str, neighbours: tuple[object, ...]
) -> None:
    taken, malformed = decoded(_TIME, *neighbours, value)
    assert len(taken) == len(neighbours)
    assert malformed == [len(neighbours)]


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"7", b'"text"', b"\xff\xfe", b'{"x": nope}', b"null"])
def test_what_is_no_object_is_malformed_and_costs_its_neighbours_nothing(body: bytes) -> None:
    rows = JsonDecoder([("x", INT)]).decode([b'{"x": 1}', body, b'{"x": 2, "other": [1, {"deep": null}]}'])
    assert rows.columns[0].to_pylist() == [1, 2]
    assert [malformed.position for malformed in rows.malformed] == [1]
    assert rows.malformed[0].reason


def test_a_missing_field_is_null() -> None:
    assert JsonDecoder([("x", INT)]).decode([b"{}"]).columns[0].to_pylist() == [None]


_ROW = DataType(
    TypeKind.ROW,
    fields=(
        Field("n", INT),
        Field("text", STRING),
        Field("in", DataType(TypeKind.ROW, fields=(Field("at", _TIME),))),
    ),
)


def test_a_row_takes_its_fields_by_name_and_is_null_where_it_is_not_there() -> None:
    taken, malformed = decoded(
        _ROW, {"in": {"at": "2026-01-02 03:04:05", "more": 1}, "n": "7", "other": [1]}, None, {"text": {"a": 1}}, {}
    )
    at = datetime.datetime(2026, 1, 2, 3, 4, 5)
    assert [None if row is None else (row["n"], row["text"], row["in"]) for row in taken] == [  # type: ignore[index]
        (7, None, {"at": at.replace(tzinfo=taken[0]["in"]["at"].tzinfo)}),  # type: ignore[index]
        None,
        (None, '{"a":1}', None),
        (None, None, None),
    ]
    assert malformed == []


def test_a_row_with_one_bad_value_is_malformed_and_says_which() -> None:
    bodies = [b'{"x": {"n": 1}}', b'{"x": {"n": true}}', b'{"x": 5}', b'{"x": {"in": {"at": "soon"}}}']
    rows = JsonDecoder([("x", _ROW)]).decode(bodies)
    assert [row["n"] for row in rows.columns[0].to_pylist()] == [1]
    assert [malformed.position for malformed in rows.malformed] == [1, 2, 3]
    assert [malformed.reason.split(":")[0] for malformed in rows.malformed][::2] == ["x.n", "x.in.at"]
