from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.http2.hpack import Header
from millstream.protocol.http2.request_head import HeadMalformed, read_request_head, read_trailers

PSEUDO: list[Header] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/apache.rocketmq.v2.MessagingService/SendMessage"),
    (":authority", "broker:8081"),
]
REQUEST: list[Header] = [
    *PSEUDO,
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    ("user-agent", "grpc-python/1.85.3 grpc-c/58.0.0 (linux; chttp2)"),
    ("x-mq-client-id", "host@4711@0"),
    ("x-mq-namespace", ""),
]


def without(name: str) -> list[Header]:
    return [header for header in REQUEST if header[0] != name]


class TestHead:
    def test_it_has_what_is_asked_for_and_the_other_headers(self) -> None:
        for _ in range(2):  # The second time with names that are known.
            head = read_request_head(REQUEST)
            assert (head.method, head.scheme, head.authority) == ("POST", "http", "broker:8081")
            assert head.path == "/apache.rocketmq.v2.MessagingService/SendMessage"
            assert head.metadata == dict(REQUEST[4:])
            assert head.content_length is None

    def test_pseudo_headers_come_in_any_order(self) -> None:
        assert read_request_head([*PSEUDO[::-1], *REQUEST[4:]]).method == "POST"

    def test_of_headers_with_one_name_the_last_counts(self) -> None:
        for _ in range(2):
            assert read_request_head([*REQUEST, ("a", "1"), ("a", "2")]).metadata["a"] == "2"

    def test_binary_headers_are_left_out(self) -> None:
        for _ in range(2):
            assert read_request_head([*REQUEST, ("trace-bin", "AAAA")]).metadata == dict(REQUEST[4:])

    @pytest.mark.parametrize("value", ["Stra\xdfe", "\xff", "a\tb", "a\x01b", "\x7f", "\xa0a\xa0"])
    def test_values_that_are_no_text_are_left_out(self, value: str) -> None:
        head = read_request_head([*REQUEST, ("x-own", value), ("x-next", "1")])
        assert head.metadata == {**dict(REQUEST[4:]), "x-next": "1"}

    @pytest.mark.parametrize("value", ["", "a", "a  b", "a b", "!~"])
    def test_a_value_may_have_spaces_within(self, value: str) -> None:
        assert read_request_head([*REQUEST, ("x-own", value)]).metadata["x-own"] == value

    def test_the_host_stands_for_an_authority_that_is_not_there(self) -> None:
        assert read_request_head([*without(":authority"), ("host", "other")]).authority == "other"
        assert read_request_head(without(":authority")).authority == ""
        assert read_request_head([*REQUEST, ("host", "BROKER:8081")]).authority == "broker:8081"

    @pytest.mark.parametrize(
        ("values", "length"), [(["0"], 0), (["17"], 17), (["17", "17"], 17), (["9" * 18], 10**18 - 1)]
    )
    def test_the_length_of_the_content_is_a_number(self, values: list[str], length: int) -> None:
        head = read_request_head([*REQUEST, *[("content-length", value) for value in values]])
        assert head.content_length == length

    def test_connect_has_an_authority_alone(self) -> None:
        head = read_request_head([(":method", "CONNECT"), (":authority", "other:1")])
        assert (head.scheme, head.path, head.authority) == ("", "", "other:1")

    def test_a_header_list_stays_as_it_was(self) -> None:
        headers = [*REQUEST]
        read_request_head(headers)
        assert headers == REQUEST


class TestMalformedRequests:
    @pytest.mark.parametrize("name", [":method", ":scheme", ":path"])
    def test_a_pseudo_header_is_missing_or_empty(self, name: str) -> None:
        with pytest.raises(HeadMalformed, match="needs a :method"):
            read_request_head(without(name))
        with pytest.raises(HeadMalformed, match="needs a :method"):
            read_request_head([(name, ""), *without(name)])

    @pytest.mark.parametrize("header", [(":status", "200"), (":protocol", "websocket"), (":", "1"), (":Path", "/")])
    def test_a_pseudo_header_is_none_of_a_request(self, header: Header) -> None:
        with pytest.raises(HeadMalformed, match="has no pseudo-header"):
            read_request_head([header, *REQUEST])

    @pytest.mark.parametrize("header", PSEUDO)
    def test_a_pseudo_header_is_there_twice(self, header: Header) -> None:
        with pytest.raises(HeadMalformed, match="is there twice"):
            read_request_head([header, *REQUEST])

    @pytest.mark.parametrize("first", [("a", "1"), ("a-bin", "AAAA"), ("a", "\xff"), ("te", "trailers")])
    @pytest.mark.parametrize("header", PSEUDO)
    def test_a_pseudo_header_is_behind_another(self, header: Header, first: Header) -> None:
        with pytest.raises(HeadMalformed, match="is behind others"):
            read_request_head([*[one for one in PSEUDO if one != header], first, header])

    @pytest.mark.parametrize(
        "name",
        ["", "A", "content-Type", "a b", " a", "a\t", "a\0", "a\r\nb", "a:b", "\xe4", "a\x7f", "a(", "a/b", "a\n"],
    )
    def test_a_name_is_none(self, name: str) -> None:
        for _ in range(2):
            with pytest.raises(HeadMalformed, match="is no name"):
                read_request_head([*REQUEST, (name, "1")])

    @pytest.mark.parametrize("value", ["\0", "a\rb", "a\nb", " a", "a ", "\ta", "a\t", " ", "a\n", "\xe4\n", "\xe4 "])
    @pytest.mark.parametrize("name", ["x-own", "x-own-bin"])
    def test_a_value_has_what_no_value_can_have(self, name: str, value: str) -> None:
        for headers in ([*REQUEST, (name, value)], [*REQUEST, (name, value), ("z", "1")], [*PSEUDO, (name, value)]):
            with pytest.raises(HeadMalformed, match="must not be there"):
                read_request_head(headers)

    @pytest.mark.parametrize("name", [":path", ":authority", ":method"])
    def test_a_value_of_a_pseudo_header_has_what_no_value_can_have(self, name: str) -> None:
        with pytest.raises(HeadMalformed, match="must not be there"):
            read_request_head([(name, "/a\r\nb"), *without(name)])

    @pytest.mark.parametrize("name", ["connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"])
    def test_a_header_is_one_of_the_connection(self, name: str) -> None:
        for _ in range(2):
            with pytest.raises(HeadMalformed, match="is of HTTP"):
                read_request_head([*REQUEST, (name, "trailers")])

    @pytest.mark.parametrize("value", ["gzip", "", "trailers, gzip", "Trailers"])
    def test_te_is_not_trailers(self, value: str) -> None:
        with pytest.raises(HeadMalformed, match="te is"):
            read_request_head([*without("te"), ("te", value)])

    @pytest.mark.parametrize("value", ["", "-1", "+1", "1.0", "0x1", "1, 1", "\xb2", "\u0661", "9" * 19, "1 1"])
    def test_the_length_is_no_number(self, value: str) -> None:
        with pytest.raises(HeadMalformed, match="content-length is"):
            read_request_head([*REQUEST, ("content-length", value)])

    def test_lengths_differ(self) -> None:
        with pytest.raises(HeadMalformed, match="differs"):
            read_request_head([*REQUEST, ("content-length", "1"), ("content-length", "2")])

    def test_hosts_differ(self) -> None:
        with pytest.raises(HeadMalformed, match="differ"):
            read_request_head([*REQUEST, ("host", "other:8081")])

    @pytest.mark.parametrize(
        "headers",
        [
            [(":method", "CONNECT")],
            [(":method", "CONNECT"), (":authority", "a"), (":path", "/")],
            [(":method", "CONNECT"), (":authority", "a"), (":scheme", "http")],
        ],
    )
    def test_connect_has_too_much_or_too_little(self, headers: list[Header]) -> None:
        with pytest.raises(HeadMalformed, match="CONNECT"):
            read_request_head(headers)

    def test_there_are_no_headers(self) -> None:
        with pytest.raises(HeadMalformed):
            read_request_head([])


class TestTrailers:
    def test_they_are_text_by_name(self) -> None:
        assert read_trailers([("a", "1"), ("a", "2"), ("b", "\xe4"), ("c-bin", "AA")]) == {"a": "2"}
        assert read_trailers([]) == {}

    @pytest.mark.parametrize("header", [*PSEUDO, ("A", "1"), ("a", " 1"), ("connection", "close"), (":status", "200")])
    def test_what_cannot_stand_there_is_malformed(self, header: Header) -> None:
        with pytest.raises(HeadMalformed):
            read_trailers([("a", "1"), header])


texts = st.text(st.characters(max_codepoint=255), max_size=6)


@given(st.lists(st.tuples(st.one_of(st.sampled_from(["a", "te", "host", "content-length", "a-bin"]), texts), texts)))
def test_a_head_that_is_read_has_text_alone(headers: list[Header]) -> None:
    try:
        head = read_request_head([*PSEUDO, *headers])
    except HeadMalformed:
        return
    for name, value in headers:
        assert name == name.lower()
        assert not set(name) & set("\0\r\n :")
        assert not set(value) & set("\0\r\n")
        assert value == value.strip(" \t")
    for name, value in head.metadata.items():
        assert (name, value) in headers
        assert all(" " <= character <= "~" for character in value)


def test_many_names_are_read_and_few_remembered() -> None:
    from millstream.protocol.http2 import request_head

    for number in range(2000):
        assert read_trailers([(f"x-{number}", "1"), (f"{'y' * 100}{number}", "2")])[f"x-{number}"] == "1"
        assert len(request_head._known_names) <= 512
    assert not any(name.startswith("y") for name in request_head._known_names)
