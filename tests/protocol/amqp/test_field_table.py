from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.amqp.field_table import (
    MAX_TABLE_DEPTH,
    Timestamp,
    decode_table,
    encode_table,
    encode_value,
    join_table,
    split_table,
)
from millstream.protocol.amqp.reply_codes import ConnectionFailure, ReplyCode

NAMES = st.text(max_size=20)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.integers(0, 2**64 - 1).map(Timestamp)
    | st.decimals(-20_000_000, 20_000_000, places=2)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)
TABLES = st.dictionaries(NAMES, VALUES, max_size=6)


def refusal_of(data: bytes) -> ConnectionFailure | None:
    try:
        decode_table(data)
    except ConnectionFailure as failure:
        return failure
    return None


@given(TABLES)
def test_a_table_comes_back_with_its_values_and_types(table: dict[str, object]) -> None:
    data = encode_table(table)
    found, end = decode_table(data)
    assert found == table
    assert end == len(data)
    assert [type(value) for value in found.values()] == [type(value) for value in table.values()]


@given(TABLES)
def test_a_table_that_is_split_and_joined_has_the_same_bytes(table: dict[str, object]) -> None:
    data = encode_table(table)
    assert join_table(split_table(data)) == data


@given(TABLES, st.data())
def test_a_table_with_changed_bytes_is_read_or_refused_as_a_syntax_error(
    table: dict[str, object], data: st.DataObject
) -> None:
    changed = bytearray(encode_table(table))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    failure = refusal_of(bytes(changed))
    assert failure is None or failure.code is ReplyCode.SYNTAX_ERROR


@given(TABLES)
def test_a_table_that_is_cut_off_is_refused(table: dict[str, object]) -> None:
    data = encode_table(table)
    for size in range(len(data)):
        with pytest.raises(ConnectionFailure, match="cannot be read"):
            decode_table(data[:size])


def test_every_type_of_rabbitmq_is_read_and_kept_as_it_came() -> None:
    values = {
        "t": b"t\x01",
        "b": b"b\xff",
        "B": b"B\xff",
        "s": b"s\xff\xfe",
        "u": b"u\xff\xfe",
        "I": b"I\xff\xff\xff\xfd",
        "i": b"i\xff\xff\xff\xfd",
        "l": b"l" + (-4).to_bytes(8, signed=True),
        "f": b"f\x3f\x80\x00\x00",
        "d": b"d\x3f\xf8\x00\x00\x00\x00\x00\x00",
        "D": b"D\x02\x00\x00\x01\x3a",
        "S": b"S\x00\x00\x00\x02hi",
        "A": b"A\x00\x00\x00\x02t\x00",
        "T": b"T\x00\x00\x00\x00\x00\x00\x00\x05",
        "F": b"F\x00\x00\x00\x03\x01nV",
        "V": b"V",
        "x": b"x\x00\x00\x00\x01\xff",
    }
    data = join_table(list(values.items()))
    expected = [True, -1, 255, -2, 65534, -3, 2**32 - 3, -4, 1.0, 1.5, Decimal("3.14"), "hi", [False], 5, {"n": None}]
    assert list(decode_table(data)[0].values()) == [*expected, None, b"\xff"]
    assert join_table(split_table(data)) == data


def test_a_long_string_that_is_no_utf_8_is_read_as_bytes() -> None:
    assert decode_table(join_table([("a", b"S\x00\x00\x00\x01\xff")]))[0] == {"a": b"\xff"}


def test_tables_may_lie_as_deep_as_the_limit_and_no_deeper() -> None:
    table: dict[str, object] = {}
    for _ in range(MAX_TABLE_DEPTH - 1):
        table = {"t": table}
    assert decode_table(encode_table(table))[0] == table
    with pytest.raises(ConnectionFailure, match="deep"):
        decode_table(encode_table({"t": table}))
    with pytest.raises(ConnectionFailure, match="deep"):
        decode_table(encode_table({"t": [table]}))


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, Decimal("1e-256"), Decimal(2**31), Decimal("NaN"), object()])
def test_what_no_table_can_hold_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"bits|places|cannot hold"):
        encode_value(value)  # type: ignore[arg-type]


def test_a_name_over_255_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="256 bytes"):
        encode_table({"a" * 256: 1})
