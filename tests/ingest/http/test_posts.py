"""What posts hold, by their headers, and what is said of those that cannot be read."""

from __future__ import annotations

import base64
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.ingest.http.posts import BadPost, batch_of, unpack_body


def bodies(content_type: str, body: bytes) -> list[bytes]:
    return list(batch_of({"content-type": content_type}, body, "10.0.0.1").bodies)


def refused(content_type: str, body: bytes, **headers: str) -> tuple[int, str]:
    with pytest.raises(BadPost) as bad:
        batch_of({"content-type": content_type, **headers}, body, "10.0.0.1")
    return bad.value.status, str(bad.value)


def test_one_json_value_is_one_event_and_an_array_one_for_each_element_as_they_are_written() -> None:
    assert bodies("application/json", b' {"a": 1.10}\n') == [b'{"a": 1.10}']
    array = b'[ {"n": 12345678901234567890123, "x":[1, 2]}, 1.50 , "a,b", null]'
    assert bodies("application/json; charset=utf-8", array) == [
        b'{"n": 12345678901234567890123, "x":[1, 2]}',
        b"1.50",
        b'"a,b"',
        b"null",
    ]
    assert bodies("application/vnd.acme.event+json", b"{}") == [b"{}"]


def test_lines_are_events_and_blank_ones_are_none() -> None:
    assert bodies("application/x-ndjson", b'{"a":1}\r\n\n{"a":2}') == [b'{"a":1}', b'{"a":2}']
    assert bodies("text/plain", b"one\n\n two \n") == [b"one", b" two "]
    assert bodies("application/octet-stream", b"\x00\n\x01") == [b"\x00\n\x01"]


@pytest.mark.parametrize(
    ("content_type", "body", "status", "words"),
    [
        ("application/json", b"{", 400, "The body is no JSON: "),
        ("application/json", b'[{"a": 1}, {"a": }]', 400, "array"),
        ("application/json", b"[]", 400, "holds no event"),
        ("application/x-ndjson", b'{"a":1}\n\n{"a":2\n{}', 400, "Line 3 is no JSON: "),
        ("text/plain", b"\n \n", 400, "holds no event"),
        ("", b"{}", 415, "Name what the body holds"),
        ("application/x-www-form-urlencoded", b"{}", 415, "Content-Type: application/json"),
        ("application/octet-stream", b"", 400, "blank"),
        ("application/octet-stream", b"x" * (3 * 1024 * 1024 + 1), 413, "3,145,729 bytes"),
        ("text/plain", b"x\n" * 100_001, 413, "100,001 events"),
        ("application/cloudevents+json", b'{"id": "1"}', 400, "attribute source is missing"),
        ("application/cloudevents+json", b"[1]", 400, "The body is no CloudEvent: "),
        ("application/cloudevents-batch+json", b'[{"id": {}}]', 400, "Element 1 is no CloudEvent: the attribute 'id'"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_its_place(
    content_type: str, body: bytes, status: int, words: str
) -> None:
    found, said = refused(content_type, body)
    assert found == status
    assert words in said


@given(st.lists(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5), min_size=1, max_size=6))
def test_the_elements_of_any_array_are_its_values(values: list[object]) -> None:
    assert [json.loads(body) for body in bodies("application/json", json.dumps(values).encode())] == values


@given(st.sampled_from(["application/json", "application/x-ndjson", "application/cloudevents+json"]), st.binary())
def test_any_bytes_are_events_or_a_refusal(content_type: str, body: bytes) -> None:
    try:
        found = bodies(content_type, body)
    except BadPost as bad:
        found, status = [], bad.status
    else:
        status = 200
    assert (status == 200) is bool(found)
    assert status in (200, 400)


CLOUD = {"specversion": "1.0", "type": "com.example.someevent", "source": "/mycontext", "id": "A234-1234-1234"}


def test_a_cloud_event_in_headers_becomes_body_properties_and_key() -> None:
    headers = {f"ce-{name}": value for name, value in CLOUD.items()} | {"content-type": "application/json"}
    headers["ce-comment"] = "Euro%20%E2%82%AC"
    event_batch = batch_of(headers, b'{"a": 1}', "10.0.0.1")
    assert list(event_batch.bodies) == [b'{"a": 1}']
    assert event_batch.keys == ["A234-1234-1234"]
    assert event_batch.properties(0) == {
        "peer": "10.0.0.1",
        "CE_specversion": "1.0",
        "CE_type": "com.example.someevent",
        "CE_source": "/mycontext",
        "CE_id": "A234-1234-1234",
        "CE_comment": "Euro €",
        "CE_datacontenttype": "application/json",
    }


@pytest.mark.parametrize(
    ("members", "body"),
    [
        ({"data": {"n": 1.5}}, b'{"n": 1.5}'),
        ({"data": '<much wow="xml"/>', "datacontenttype": "application/xml"}, b'<much wow="xml"/>'),
        ({"data_base64": base64.b64encode(b"\x00\x01").decode()}, b"\x00\x01"),
        ({}, b"null"),
        ({"sampledrate": 5, "flag": True}, b"null"),
    ],
)
def test_a_cloud_event_as_json_gives_the_same_as_in_headers(members: dict[str, object], body: bytes) -> None:
    text = json.dumps({**CLOUD, **members}).encode()
    for content_type, posted in (
        ("application/cloudevents+json; charset=utf-8", text),
        ("application/cloudevents-batch+json", b"[" + text + b"]"),
    ):
        event_batch = batch_of({"content-type": content_type}, posted, "10.0.0.1")
        assert list(event_batch.bodies) == [body]
        assert event_batch.keys == ["A234-1234-1234"]
        assert event_batch.properties(0)["CE_type"] == "com.example.someevent"
    if "flag" in members:
        assert (event_batch.properties(0)["CE_flag"], event_batch.properties(0)["CE_sampledrate"]) == ("true", "5")


def test_packed_bodies_are_unpacked_up_to_the_limit() -> None:
    assert unpack_body(gzip.compress(b"a") + gzip.compress(b"b"), "gzip", 2) == b"ab"
    assert unpack_body(b"a", "", 10) == b"a"
    for body, encoding, status in (
        (gzip.compress(b"x" * 100), "gzip", 413),
        (b"no gzip", "gzip", 400),
        (gzip.compress(b"x" * 5)[:-4], "gzip", 400),
        (b"a", "br", 415),
    ):
        with pytest.raises(BadPost) as bad:
            unpack_body(body, encoding, 10)
        assert bad.value.status == status
