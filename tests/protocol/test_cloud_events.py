"""CloudEvents as messages and back, beside the library of the CloudEvents project where it is installed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model.message import Address, StoredMessage
from millstream.protocol.cloud_events import (
    STRUCTURED_TYPE,
    CloudEvent,
    binary_headers,
    check_event,
    encode_event,
    event_attributes,
    expiry_of_event,
    read_binary_event,
    read_json_event,
    read_plain_events,
    split_array,
)

ADDRESS = Address("127.0.0.1", 1)
plain_text = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
names = st.from_regex(r"x[a-z0-9]{1,15}", fullmatch=True)
attributes = st.builds(
    lambda base, more: {**more, **base},
    st.fixed_dictionaries({"specversion": st.just("1.0"), "id": plain_text, "source": plain_text, "type": plain_text}),
    st.dictionaries(names, plain_text, max_size=4),
)


def stored(event: CloudEvent, **more: str) -> StoredMessage:
    properties = {"UNIQ_KEY": "01ABC", **event.properties, **more}
    return StoredMessage("orders", 1, 7, 0, event.body, properties, 0, ADDRESS, 1_795_000_000_123, ADDRESS)


@settings(max_examples=50)
@given(attributes, st.binary(min_size=1, max_size=50))
def test_an_event_in_binary_mode_comes_out_as_it_came_in(given_attributes: dict[str, str], body: bytes) -> None:
    headers = {f"ce-{name}": value for name, value in given_attributes.items()}
    headers = dict(binary_headers(event_attributes(stored(read_binary_event(encoded(headers), body)))))
    event = read_binary_event(headers, body)
    assert event.properties == {f"CE_{name}": value for name, value in given_attributes.items()}
    assert event.body == body


def encoded(headers: dict[str, str]) -> dict[str, str]:
    """The headers with their values percent-encoded, as senders write them."""
    found = {}
    for name, value in headers.items():
        found[name] = "".join(f"%{byte:02X}" for byte in value.encode())
    return found


@settings(max_examples=50)
@given(
    attributes,
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | plain_text,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_text, inner, max_size=3),
    ),
)
def test_an_event_in_structured_mode_comes_out_as_it_came_in(given_attributes: dict[str, str], data: Any) -> None:
    if isinstance(data, str):
        data = {"text": data}
    sent = {**given_attributes, "datacontenttype": "application/json", "data": data}
    message = stored(read_json_event(json.dumps(sent).encode()))
    found = json.loads(encode_event(event_attributes(message), message.body))
    assert found == sent


def test_data_is_text_for_texts_and_base64_for_bytes() -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    assert json.loads(encode_event({**event, "datacontenttype": "text/plain"}, b"abc"))["data"] == "abc"
    assert json.loads(encode_event({**event, "datacontenttype": "text/plain"}, b"\xff"))["data_base64"] == "/w=="
    assert json.loads(encode_event({**event, "datacontenttype": "image/png"}, b"abc"))["data_base64"] == "YWJj"
    assert json.loads(encode_event({**event, "datacontenttype": "a/b+json"}, b"[1]"))["data"] == [1]


def test_a_message_that_was_no_event_gets_the_attributes_of_its_place() -> None:
    message = stored(CloudEvent(b"x", {}, None), TAGS="new", KEYS="k1 k2", user="anna", Level="3", source="mine")
    found = event_attributes(message)
    assert found == {
        "specversion": "1.0",
        "id": "01ABC",
        "source": "/millstream/orders/1",
        "type": "new",
        "time": "2026-11-18T11:06:40.123Z",
        "datacontenttype": "application/octet-stream",
        "subject": "k1",
        "user": "anna",
        "millstreamprops": '{"KEYS":"k1 k2","Level":"3","source":"mine"}',
    }


@pytest.mark.parametrize("time", ["2026-11-24T08:30:00Z", "2026-11-24t08:30:00.123+01:00", "2016-12-31T23:59:60Z"])
def test_times_of_rfc_3339_are_taken(time: str) -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t", "ce-time": time}
    check_event(read_binary_event(headers, b"x"))


@pytest.mark.parametrize("time", ["2026-11-24", "2026-11-24T08:30:00", "2026-13-01T00:00:00Z", "2026-11-24T24:00:00Z"])
def test_other_times_are_refused(time: str) -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t", "ce-time": time}
    with pytest.raises(ValueError, match="not of RFC 3339"):
        check_event(read_binary_event(headers, b"x"))


def data_of(event: Any) -> bytes:
    """The library gives bytes that are UTF-8 as a text."""
    data = event.get_data()
    return data.encode() if isinstance(data, str) else bytes(data)


@settings(max_examples=50)
@given(attributes, st.binary(min_size=1, max_size=50))
def test_the_library_of_the_cloudevents_project_reads_what_is_written(
    given_attributes: dict[str, str], body: bytes
) -> None:
    http = pytest.importorskip(
        "cloudevents.core.bindings.http", reason="the package cloudevents is not installed: no second reader"
    )
    headers = encoded({f"ce-{name}": value for name, value in given_attributes.items()})
    message = stored(read_binary_event({**headers, "content-type": "application/octet-stream"}, body))
    held = event_attributes(message)
    read = http.from_http_event(http.HTTPMessage(dict(binary_headers(held)), message.body))
    assert {name: read.get_attributes()[name] for name in given_attributes} == given_attributes
    assert data_of(read) == body
    text = encode_event(held, message.body)
    read = http.from_http_event(http.HTTPMessage({"content-type": STRUCTURED_TYPE}, text))
    assert {name: read.get_attributes()[name] for name in given_attributes} == given_attributes
    assert data_of(read) == body


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("2026-11-24T08:30:00Z", 1_795_509_000_000),
        ("2026-11-24t10:30:00.123456789+02:00", 1_795_509_000_123),
        ("2026-11-24T08:29:60Z", 1_795_508_999_000),
        ("0001-01-01T00:00:00+23:59", 0),
        (None, None),
    ],
)
def test_an_event_expires_when_its_extension_says_so(said: str | None, expected: int | None) -> None:
    more = {} if said is None else {"ce-expirytime": said}
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t", **more}
    event = read_binary_event(headers, b"x")
    check_event(event)
    assert expiry_of_event(event) == expected


def test_a_message_says_as_an_event_when_it_expires_and_what_group_it_has() -> None:
    message = stored(
        CloudEvent(b"x", {}, None), __EXPIRES_MS="1795509000123", __SHARDINGKEY="g1", mqtt_content_type="a/b"
    )
    found = event_attributes(message)
    assert (found["expirytime"], found["partitionkey"]) == ("2026-11-24T08:30:00.123Z", "g1")
    assert found["datacontenttype"] == "a/b"


def test_an_expiry_that_is_no_time_is_refused() -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t", "ce-expirytime": "soon"}
    with pytest.raises(ValueError, match="expirytime 'soon' is not of RFC 3339"):
        check_event(read_binary_event(headers, b"x"))


members = st.fixed_dictionaries(
    {
        name: st.sampled_from(["1.0", "1.0", "a b", "a b", "é", "", " ", "x" * 400, 1, None])
        for name in ("id", "source", "type")
    },
    optional={
        "specversion": st.sampled_from(["1.0", "1.0", "1.0", "0.3"]),
        "datacontenttype": st.sampled_from(["text/plain", "", None]),
        "time": st.sampled_from(["2026-11-24T08:30:00Z", "soon", ""]),
        "subject": st.sampled_from(["s", "\n", True]),
        "tenant": st.just("t1"),
        "data": st.sampled_from([None, "text", "é", {"a": 1}, {"a": "é"}, 5]),
        "data_base64": st.just("eA=="),
    },
)


@settings(max_examples=300)
@given(st.lists(members, min_size=1, max_size=3), st.booleans(), st.sampled_from([None, 1]))
def test_a_batch_of_plain_events_is_read_as_its_elements_one_by_one(
    batch: list[dict[str, Any]], is_ascii: bool, indent: int | None
) -> None:
    text = json.dumps(batch, ensure_ascii=is_ascii, indent=indent).encode()
    found = read_plain_events(text)
    if found is not None:
        one_by_one = [read_json_event(element) for element in split_array(text)]
        for event in one_by_one:
            check_event(event)
        assert found == one_by_one


def test_an_attribute_that_is_blank_or_null_counts_the_same_in_a_batch() -> None:
    plain = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": 1}
    for more in ({"datacontenttype": ""}, {"subject": None, "dataschema": ""}, {"data": None}, {"data": " x"}):
        text = json.dumps([{**plain, **more}], indent=1).encode()
        one_by_one = [read_json_event(element) for element in split_array(text)]
        assert read_plain_events(text) in (None, one_by_one)


def test_ordinary_batches_are_read_as_plain_ones() -> None:
    event = {
        "specversion": "1.0",
        "id": "1",
        "source": "/s",
        "type": "t",
        "time": "2026-11-24T08:30:00Z",
        "data": {"a": 1},
    }
    assert [one.body for one in read_plain_events(json.dumps([event, event]).encode()) or []] == [b'{"a": 1}'] * 2
    for strange in (b"[", b"{}", b"[" * 100_000, json.dumps([{**event, "tenant": "x"}]).encode()):
        assert read_plain_events(strange) is None
