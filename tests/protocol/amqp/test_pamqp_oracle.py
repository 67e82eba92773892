"""The codec beside pamqp, a codec by others."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from amqp_peer import read_frames
from millstream.protocol.amqp import basic_methods, session_methods, topology_methods
from millstream.protocol.amqp.content import decode_properties
from millstream.protocol.amqp.field_table import Timestamp, decode_table, encode_table
from millstream.protocol.amqp.frames import METHOD, method_frame
from millstream.protocol.amqp.method_codec import AmqpMethod, decode_method

pamqp_frame = pytest.importorskip("pamqp.frame")
from pamqp import commands, decode, encode, header  # noqa: E402

CLASSES = {name: getattr(commands, name) for name in "Connection Channel Exchange Queue Basic Confirm Tx".split()}
OURS = [
    getattr(module, name) for module in (session_methods, topology_methods, basic_methods) for name in module.__all__
]
VALUES: dict[str, tuple[Any, ...]] = {
    "Octet": (0, 9),
    "Short": (0, 312),
    "Long": (0, 70_000),
    "LongLong": (0, 2**40),
    "ShortText": ("", "queue.name"),
    "LongText": (b"", b"long text"),
    "Bit": (False, True),
    "Table": ({}, {"x-max-length": 5, "nested": {"a": [1, "b", None, True]}}),
}


RESERVED = frozenset("ticket out_of_band channel_id capabilities insist known_hosts cluster_id".split())
"""Fields that mean nothing in 0-9-1; pamqp takes one value in each."""


def method_values(kind: type[AmqpMethod], pick: int) -> AmqpMethod:
    wanted = {field.name: VALUES[field.type][pick] for field in fields(kind) if field.name not in RESERVED}
    return kind(**wanted)


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("pick", [0, 1])
def test_a_method_is_written_and_read_as_pamqp_does(kind: type[AmqpMethod], pick: int) -> None:
    class_name = next(name for name in CLASSES if kind.__name__.startswith(name))
    theirs = getattr(CLASSES[class_name], kind.__name__.removeprefix(class_name), None)
    if theirs is None:
        pytest.skip(f"pamqp has no {kind.__name__}")
    ours = method_values(kind, pick)
    written = method_frame(3, ours)
    try:
        size, channel, read = pamqp_frame.unmarshal(written)
        again = pamqp_frame.marshal(read, 3)
    except ValueError as error:
        pytest.skip(f"pamqp refuses what RabbitMQ sends: {error}")
    assert isinstance(read, theirs)
    assert (size, channel) == (len(written), 3)
    [(frame_kind, _, payload)] = read_frames(again)
    assert frame_kind == METHOD
    assert decode_method(payload) == ours


def test_tables_are_written_as_pamqp_writes_them() -> None:
    table = {"text": "é", "yes": True, "small": 5, "large": 2**40, "real": 1.5, "none": None, "list": [1, "two"]}
    _, theirs = decode.field_table(encode_table(table))
    assert theirs == table
    written = encode.field_table({**table, "time": datetime(2026, 1, 2, tzinfo=UTC), "price": Decimal("3.14")})
    assert decode_table(written)[0] == {**table, "time": Timestamp(1_767_312_000), "price": Decimal("3.14")}


def test_properties_are_read_as_pamqp_wrote_them() -> None:
    values = {"content_type": "text/plain", "delivery_mode": 2, "priority": 3, "correlation_id": "c", "reply_to": "r",
              "expiration": "1000", "message_id": "m", "message_type": "t", "user_id": "u", "app_id": "a"}  # fmt: skip
    written = header.ContentHeader(body_size=5, properties=commands.Basic.Properties(**values)).marshal()
    found = decode_properties(written[12:])
    values["type"] = values.pop("message_type")
    assert {name: getattr(found, name) for name in values} == values
