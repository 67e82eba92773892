"""The fields of sends, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import MessageRefused
from millstream.model.message import Address
from millstream.model.properties import encode_properties
from millstream.protocol.remoting.messages.sends import decode_send, encode_send

_PEER = Address("192.0.2.1", 4711)
_NAME = st.text("abcXYZ_-09", min_size=1, max_size=20)
_NUMBER = st.integers(0, 2**62)
_LONG_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "l": "maxReconsumeTimes",
    "m": "batch",
}


@given(_NAME, st.integers(0, 1023), _NAME, st.dictionaries(_NAME, _NAME, max_size=3), _NAME, _NUMBER, st.booleans())
def test_a_send_is_read_as_it_was_written_by_either_names(
    topic: str, queue_id: int, broker: str, held: dict[str, str], group: str, born_ms: int, is_batch: bool
) -> None:
    stored = encode_properties(held).decode()
    ext = encode_send(topic, queue_id, broker, stored, group=group, born_ms=born_ms, is_batch=is_batch)
    call = decode_send(ext, b"body", _PEER, is_short=True)
    message = call.message
    assert (message.topic, message.queue_id, message.body) == (topic, queue_id, b"body")
    assert (message.properties, message.born_timestamp_ms, message.born_host) == (held, born_ms, _PEER)
    assert (call.producer_group, call.is_batch, call.is_typed) == (group, is_batch, True)
    spelled = {_LONG_NAMES.get(name, name): value for name, value in ext.items()}
    assert decode_send(spelled, b"body", _PEER, is_short=False) == call


def test_the_fields_of_a_send_keep_their_order() -> None:
    ext = encode_send("t", 1, "broker-a", "p", group="g", born_ms=2, is_batch=False)
    assert "".join(ext) == "abcdefghijklmntyped"
    assert [*ext.values()] == [
        "g",
        "t",
        "TBW102",
        "4",
        "1",
        "0",
        "2",
        "0",
        "p",
        "0",
        "false",
        "0",
        "false",
        "broker-a",
        "true",
    ]


def test_only_what_goes_to_a_retry_topic_has_a_limit_of_deliveries() -> None:
    fields = {"a": "g", "b": "t", "e": "-1", "l": "7"}
    assert decode_send(fields, b"", _PEER, is_short=True).max_reconsume_times is None
    assert decode_send(fields | {"b": "%RETRY%g"}, b"", _PEER, is_short=True).max_reconsume_times == 7
    assert decode_send(fields, b"", _PEER, is_short=True).message.queue_id is None


@pytest.mark.parametrize("wrong", [{"b": ""}, {"e": "x"}, {"f": "-1"}, {"f": str(1 << 31)}, {"g": "soon"}])
def test_a_send_that_means_nothing_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(MessageRefused):
        decode_send({"a": "g", "b": "t", "e": "0"} | wrong, b"", _PEER, is_short=True)
