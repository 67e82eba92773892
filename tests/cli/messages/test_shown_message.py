"""A stored message as commands show it."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace

import pytest

from millstream.cli.messages.shown_message import FIELDS, MessageFormat, body_of, details_of, values_of
from millstream.model.message import Address, StoredMessage, SystemFlag

MESSAGE = StoredMessage(
    topic="orders",
    queue_id=2,
    queue_offset=7,
    log_offset=0x10,
    body=b"body",
    properties={"UNIQ_KEY": "ID", "TAGS": "new", "KEYS": "k1 k2", "region": "eu", "__SHARDINGKEY": "g"},
    born_timestamp_ms=1,
    born_host=Address("127.0.0.1", 1),
    store_timestamp_ms=1_700_000_000_123,
    store_host=Address("127.0.0.1", 10911),
)


def test_values_hold_all_that_is_known() -> None:
    assert values_of(MESSAGE) == {
        "topic": "orders",
        "queue": 2,
        "offset": 7,
        "message_id": "ID",
        "offset_message_id": "7F00000100002A9F0000000000000010",
        "tag": "new",
        "keys": ["k1", "k2"],
        "group": "g",
        "priority": None,
        "properties": {"region": "eu"},
        "born_ms": 1,
        "stored_ms": 1_700_000_000_123,
        "body": "body",
    }


def test_a_body_that_is_no_text_is_there_in_full() -> None:
    values = values_of(replace(MESSAGE, body=b"\xff\x00"))
    assert base64.b64decode(str(values["body_base64"])) == b"\xff\x00"


def test_a_compressed_body_is_unpacked() -> None:
    packed = replace(MESSAGE, body=zlib.compress(b"long text"), system_flag=SystemFlag.COMPRESSED)
    assert body_of(packed) == b"long text"
    assert MessageFormat("{body} {size}").line(packed) == "long text 9"


def test_details_leave_out_what_the_message_does_not_have() -> None:
    lines = list(details_of(MESSAGE))
    assert "tag         new" in lines
    assert "property    region=eu" in lines
    assert not any(line.startswith("priority") for line in lines)
    assert len(list(details_of(replace(MESSAGE, properties={})))) == 4


def test_a_format_fills_in_fields_and_escapes() -> None:
    form = MessageFormat(r"{stored}\t{queue:>3}|{tag}|{keys}|{properties[region]}|{properties[none]}|{priority}|{{x}}")
    assert form.line(MESSAGE) == "2023-11-14T22:13:20Z\t  2|new|k1 k2|eu|||{x}"


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_can_be_named(field: str) -> None:
    assert MessageFormat(f"<{{{field}}}>").line(MESSAGE).startswith("<")


@pytest.mark.parametrize(
    "wrong", ["{bad}", "{body", "body}", "{}", "{tag:d}", "{topic.__class__}", "{0}", "{tag:>1000}"]
)
def test_a_format_that_cannot_be_meant_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        MessageFormat(wrong)
