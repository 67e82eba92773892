from __future__ import annotations

import random

import hpack as oracle
import pytest
from hpack.table import HeaderTable
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millstream.protocol.http2 import hpack
from millstream.protocol.http2.hpack import (
    MAX_INDEXED_VALUE_BYTES,
    STATIC_TABLE,
    Header,
    HeaderDecoder,
    HeaderEncoder,
    HeaderListTooLarge,
    HpackError,
)

FIRST_REQUEST = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")]
REQUESTS = [
    FIRST_REQUEST,
    [*FIRST_REQUEST, ("cache-control", "no-cache")],
    [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ],
]
REQUEST_TABLE_BYTES = [57, 110, 164]
LATER_RESPONSE = [
    ("cache-control", "private"),
    ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
    ("location", "https://www.example.com"),
]
RESPONSES = [
    [(":status", "302"), *LATER_RESPONSE],
    [(":status", "307"), *LATER_RESPONSE],
    [
        (":status", "200"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
        ("location", "https://www.example.com"),
        ("content-encoding", "gzip"),
        ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ],
]
RESPONSE_TABLE_BYTES = [222, 222, 215]

# RFC 7541, Appendix C.
C3 = [
    "828684410f7777772e6578616d706c652e636f6d",
    "828684be58086e6f2d6361636865",
    "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
]
C4 = [
    "828684418cf1e3c2e5f23a6ba0ab90f4ff",
    "828684be5886a8eb10649cbf",
    "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
]
C5 = [
    "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54"
    "6e1768747470733a2f2f7777772e6578616d706c652e636f6d",
    "4803333037c1c0bf",
    "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153"
    "444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
]
C6 = [
    "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
    "4883640effc1c0bf",
    "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b"
    "3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
]


def blocks(*digits: str) -> bytes:
    return bytes.fromhex("".join(digits))


class TestExamples:
    @pytest.mark.parametrize(
        ("digits", "header", "table_bytes"),
        [
            ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", ("custom-key", "custom-header"), 55),
            ("040c2f73616d706c652f70617468", (":path", "/sample/path"), 0),
            ("100870617373776f726406736563726574", ("password", "secret"), 0),
            ("82", (":method", "GET"), 0),
        ],
    )
    def test_each_representation_is_read(self, digits: str, header: Header, table_bytes: int) -> None:
        decoder = HeaderDecoder()
        assert decoder.decode(blocks(digits)) == [header]
        assert decoder.table_bytes == table_bytes

    @pytest.mark.parametrize("rows", [C3, C4], ids=["plain", "huffman"])
    def test_requests_are_read(self, rows: list[str]) -> None:
        decoder = HeaderDecoder()
        for row, headers, table_bytes in zip(rows, REQUESTS, REQUEST_TABLE_BYTES, strict=True):
            assert decoder.decode(blocks(row)) == headers
            assert decoder.table_bytes == table_bytes

    @pytest.mark.parametrize("rows", [C5, C6], ids=["plain", "huffman"])
    def test_responses_are_read_with_a_table_of_256_bytes(self, rows: list[str]) -> None:
        decoder = HeaderDecoder(max_table_bytes=256)
        for row, headers, table_bytes in zip(rows, RESPONSES, RESPONSE_TABLE_BYTES, strict=True):
            assert decoder.decode(memoryview(blocks(row))) == headers
            assert decoder.table_bytes == table_bytes

    def test_requests_are_written_byte_for_byte(self) -> None:
        encoder = HeaderEncoder()
        for row, headers, table_bytes in zip(C4, REQUESTS, REQUEST_TABLE_BYTES, strict=True):
            assert encoder.encode(headers).hex() == row
            assert encoder.table_bytes == table_bytes

    def test_responses_are_written_byte_for_byte_with_a_table_of_256_bytes(self) -> None:
        encoder = HeaderEncoder()
        encoder.resize(256)
        assert encoder.encode([]).hex() == "3fe101"
        for row, headers, table_bytes in zip(C6, RESPONSES, RESPONSE_TABLE_BYTES, strict=True):
            assert encoder.encode(headers).hex() == row
            assert encoder.table_bytes == table_bytes

    def test_1337_is_an_integer_of_three_bytes(self) -> None:
        # C.1.2, as a size of the table: the prefix has 5 bits there, too.
        encoder = HeaderEncoder()
        encoder.resize(1337)
        assert encoder.encode([]) == blocks("3f9a0a")
        assert HeaderDecoder().decode(blocks("3f9a0a")) == []
        with pytest.raises(HpackError, match="1337 bytes is over the limit of 1336"):
            HeaderDecoder(max_table_bytes=1336).decode(blocks("3f9a0a"))

    def test_the_static_table_is_the_oracles(self) -> None:
        assert [(name.encode(), value.encode()) for name, value in STATIC_TABLE] == [*HeaderTable.STATIC_TABLE]


class TestRefusals:
    @pytest.mark.parametrize(
        "digits",
        [
            "80",  # Index 0.
            "be",  # Behind the static table, with an empty dynamic one.
            "ff80808001",  # Far behind it.
            "7f0001",  # As a name.
            "0f3000",  # As a name of a header that is not inserted.
            "00",  # No name.
            "0001",
            "000161",  # No value.
            "00016105",
            "0001610561626364",  # A value of 5 bytes with 4.
            "00056162",
            "0001617f",  # No length.
            "00017f80808080",
            "000161ff8080808001",  # A length of 5 bytes behind the prefix.
            "0001617fffffff7f61",  # A length of 2**28 and more.
            "ff8080808000",
            "008461",  # Huffman code that is longer than its block.
            "000161841fffffff",  # No padding, no code.
            "00016184ffffffff",  # The end of a string within it.
            "00016181ff",  # 8 bits of padding.
            "3fe21f",  # A table of 4097 bytes.
            "202020",  # A third size.
            "8220",  # A size behind a header.
            "82210161",
            "0f80808080000161",  # An index of 5 bytes behind the prefix.
            "3f",
            "3f80",
        ],
    )
    def test_a_block_that_breaks_the_format_is_an_error(self, digits: str) -> None:
        with pytest.raises(HpackError):
            HeaderDecoder().decode(blocks(digits))

    @pytest.mark.parametrize("digits", ["203fe11f", "20", "3fe11f82", "2020"])
    def test_a_block_may_begin_with_two_sizes(self, digits: str) -> None:
        decoder = HeaderDecoder()
        decoder.decode(blocks(C3[0]))
        decoder.decode(blocks(digits))
        assert decoder.table_bytes == (57 if digits == "3fe11f82" else 0)

    def test_the_largest_integer_is_below_two_to_the_28(self) -> None:
        # 0xfffffff less the prefix of a string, whose text is not there.
        with pytest.raises(HpackError, match="longer than its block"):
            HeaderDecoder().decode(blocks("0001617f80ffff7f61"))
        with pytest.raises(HpackError, match="an integer is not below"):
            HeaderDecoder().decode(blocks("0001617f81ffff7f61"))

    def test_an_integer_may_have_four_bytes_behind_its_prefix(self) -> None:
        assert HeaderDecoder().decode(blocks("0f808080000161")) == [("accept-charset", "a")]


class TestListLimit:
    def test_a_list_of_just_the_limit_is_read(self) -> None:
        block = b"\x00\x01a\x05abcde" * 3
        assert HeaderDecoder(max_list_bytes=3 * 38).decode(block) == [("a", "abcde")] * 3
        with pytest.raises(HeaderListTooLarge):
            HeaderDecoder(max_list_bytes=3 * 38 - 1).decode(block)

    @pytest.mark.parametrize("limit", [0, 40, 100, 221])
    def test_the_table_follows_a_block_that_is_over_the_limit(self, limit: int) -> None:
        decoder = HeaderDecoder(max_table_bytes=256, max_list_bytes=limit)
        for row, table_bytes in zip(C6, RESPONSE_TABLE_BYTES, strict=True):
            with pytest.raises(HeaderListTooLarge):
                decoder.decode(blocks(row))
            assert decoder.table_bytes == table_bytes
        if limit >= 98:
            assert decoder.decode(b"\xbe") == RESPONSES[-1][-1:]

    def test_many_references_to_a_large_entry_are_over_the_limit(self) -> None:
        decoder = HeaderDecoder()
        decoder.decode(b"\x40\x01a\x7f\xa1\x1e" + b"x" * 4000)
        assert len(decoder.decode(b"\xbe" * 16)) == 16
        with pytest.raises(HeaderListTooLarge):
            decoder.decode(b"\xbe" * 17)

    def test_a_block_that_was_over_the_limit_is_so_again(self) -> None:
        decoder = HeaderDecoder(max_list_bytes=50)
        for _ in range(2):
            with pytest.raises(HeaderListTooLarge):
                decoder.decode(b"\x82\x86")

    def test_a_broken_block_over_the_limit_is_an_error_of_the_connection(self) -> None:
        with pytest.raises(HpackError):
            HeaderDecoder(max_list_bytes=10).decode(b"\x82\x80")


class TestRepeatedBlocks:
    def test_an_index_means_something_else_after_an_insertion(self) -> None:
        decoder = HeaderDecoder()
        decoder.decode(b"\x40\x01a\x011")
        assert decoder.decode(b"\xbe") == decoder.decode(b"\xbe") == [("a", "1")]
        decoder.decode(b"\x40\x01b\x012")
        assert decoder.decode(b"\xbe") == [("b", "2")]

    def test_an_index_means_nothing_after_the_table_is_emptied(self) -> None:
        decoder = HeaderDecoder()
        decoder.decode(b"\x40\x01a\x011")
        decoder.decode(b"\xbe")
        decoder.decode(b"\x20")
        with pytest.raises(HpackError):
            decoder.decode(b"\xbe")

    def test_a_name_stays_that_of_an_entry_which_its_insertion_drives_out(self) -> None:
        decoder = HeaderDecoder(max_table_bytes=40)
        decoder.decode(b"\x40\x03abc\x011")
        assert decoder.decode(b"\x7e\x012") == [("abc", "2")]
        assert decoder.decode(b"\xbe") == [("abc", "2")]

    def test_an_entry_that_is_larger_than_the_table_empties_it(self) -> None:
        decoder = HeaderDecoder(max_table_bytes=40)
        decoder.decode(b"\x40\x03abc\x011")
        assert decoder.decode(b"\x40\x03abc\x06123456") == [("abc", "123456")]
        assert decoder.table_bytes == 0

    def test_entries_may_fill_the_table(self) -> None:
        decoder = HeaderDecoder(max_table_bytes=68)
        decoder.decode(b"\x40\x01a\x011\x40\x01b\x012")
        assert decoder.decode(b"\xbe\xbf") == [("b", "2"), ("a", "1")]
        decoder = HeaderDecoder(max_table_bytes=34)
        decoder.decode(b"\x40\x01a\x011\x40\x01b\x012")
        assert decoder.decode(b"\xbe") == [("b", "2")]

    def test_a_table_has_4096_bytes_until_the_peer_makes_use_of_more(self) -> None:
        decoder = HeaderDecoder(max_table_bytes=8192)
        large = b"\x40\x01a\x7f\x89\x26" + b"x" * 5000
        decoder.decode(large)
        assert decoder.table_bytes == 0
        decoder.decode(b"\x3f\xe1\x3f" + large)
        assert decoder.table_bytes == 5033

    def test_few_blocks_are_remembered_and_only_short_ones(self) -> None:
        decoder = HeaderDecoder()
        for number in range(300):
            block = b"\x82" * (number % 100) + b"\x00\x01a\x03%03d" % number
            assert decoder.decode(block)[-1] == ("a", f"{number:03}")
            assert len(decoder._blocks) <= 64
        assert decoder._blocks
        assert max(map(len, decoder._blocks)) <= 64

    def test_few_strings_are_remembered_and_only_short_ones(self) -> None:
        decoder = HeaderDecoder()
        for number in range(2000):
            text = f"{number:04}" * (1 if number % 2 else 100)
            block = bytearray(b"\x00\x01a")
            hpack._write_string(block, text, True)
            assert decoder.decode(bytes(block)) == [("a", text)]
            assert len(hpack._texts) <= 512
        assert hpack._texts
        assert max(map(len, hpack._texts)) <= 128


class TestEncoder:
    def test_an_empty_value_is_a_byte_of_zero(self) -> None:
        assert HeaderEncoder().encode([("x", "")]) == blocks("4081f300")

    def test_a_header_that_is_larger_than_the_table_drives_nothing_out(self) -> None:
        encoder = HeaderEncoder()
        encoder.resize(40)
        encoder.encode([("a", "1"), ("abc", "123456")])
        assert encoder.encode([("a", "1")]) == b"\xbe"
        assert encoder.table_bytes == 34

    def test_an_index_means_nothing_after_the_table_has_shrunk(self) -> None:
        encoder = HeaderEncoder()
        for _ in range(2):
            encoder.encode([("a", "1")])
        encoder.resize(0)
        assert encoder.encode([("a", "1")])[:2] == b"\x20\x00"

    def test_headers_of_answers_become_indexes(self) -> None:
        encoder = HeaderEncoder()
        head = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-encoding", "identity")]
        end = [("grpc-status", "0")]
        first = len(encoder.encode(head)) + len(encoder.encode(end))
        assert first > 20
        assert (len(encoder.encode(head)), len(encoder.encode(end))) == (3, 1)

    @pytest.mark.parametrize(
        "header",
        [("grpc-message", "no topic"), ("x-own", "x" * (MAX_INDEXED_VALUE_BYTES + 1)), ("content-length", "5")],
    )
    def test_values_of_one_call_stay_out_of_the_table(self, header: Header) -> None:
        encoder, decoder = HeaderEncoder(), HeaderDecoder()
        block = encoder.encode([header])
        assert block[0] & 0xF0 == 0
        assert encoder.table_bytes == 0
        assert decoder.decode(block) == [header]
        assert decoder.table_bytes == 0

    def test_secrets_are_never_to_be_indexed(self) -> None:
        assert HeaderEncoder().encode([("authorization", "secret")])[0] & 0xF0 == 0x10

    def test_a_table_that_shrinks_and_grows_between_blocks_is_told_smallest_and_last(self) -> None:
        encoder = HeaderEncoder()
        encoder.encode([("a", "1")])
        for size in (1000, 0, 50, 200):
            encoder.resize(size)
        assert encoder.encode([("a", "1")])[:4] == blocks("20", "3fa901")
        assert encoder.encode([("a", "1")]) == b"\xbe"

    def test_a_table_does_not_grow_beyond_4096_bytes(self) -> None:
        encoder = HeaderEncoder()
        encoder.resize(1 << 20)
        assert encoder.encode([]) == b""

    def test_a_size_that_is_back_before_the_next_block_still_empties_the_table(self) -> None:
        encoder = HeaderEncoder()
        encoder.encode([("a", "1")])
        encoder.resize(0)
        encoder.resize(4096)
        assert encoder.encode([]) == blocks("203fe11f")
        assert encoder.encode([]) == b""

    def test_its_changes_grow_when_an_index_may_mean_something_else(self) -> None:
        encoder = HeaderEncoder()
        seen = [encoder.changes]
        for headers in ([("a", "1")], [("a", "1")], [("b", "2")], [(":status", "200")]):
            encoder.encode(headers)
            seen.append(encoder.changes)
        assert seen[0] < seen[1] == seen[2] < seen[3] == seen[4]

    def test_both_tables_stay_in_step_after_a_header_that_cannot_be_written(self) -> None:
        encoder, decoder = HeaderEncoder(), HeaderDecoder()
        decoder.decode(encoder.encode([("a", "1")]))
        with pytest.raises(UnicodeEncodeError):
            encoder.encode([("b", "2"), ("c", "\u20ac")])
        for _ in range(2):
            assert decoder.decode(encoder.encode([("b", "2"), ("a", "1")])) == [("b", "2"), ("a", "1")]


texts = st.text(st.characters(max_codepoint=255), max_size=90)
names = st.one_of(
    st.sampled_from([name for name, _ in STATIC_TABLE]),
    st.sampled_from(["grpc-status", "grpc-message", "grpc-encoding", "x-mq-request-id"]),
    st.text("abcdefgh-", min_size=1, max_size=6),
)
values = st.one_of(st.sampled_from(["", "0", "200", "application/grpc", "/"]), texts)
repeated = st.sampled_from([*RESPONSES[0], *RESPONSES[2], ("grpc-status", "0"), ("a", "1"), ("abc", "123456")])
header_lists = st.lists(st.one_of(st.tuples(names, values), repeated, st.sampled_from(STATIC_TABLE)), max_size=12)


class TablesInStep(RuleBasedStateMachine):
    """Our encoder with our decoder and the oracle's; the oracle's encoder with our decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = HeaderEncoder(), HeaderDecoder(max_list_bytes=1 << 20)
        self.their_decoder = oracle.Decoder(max_header_list_size=1 << 20)
        self.their_encoder, self.second = oracle.Encoder(), HeaderDecoder(max_list_bytes=1 << 20)
        self.block = b""

    @rule(headers=header_lists)
    def write(self, headers: list[Header]) -> None:
        block = self.encoder.encode(headers)
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        assert self.decoder.decode(block) == headers
        assert [(name, value) for name, value in self.their_decoder.decode(block, raw=True)] == raw

    @rule(headers=header_lists, huffman=st.booleans(), sensitive=st.booleans())
    def read(self, headers: list[Header], huffman: bool, sensitive: bool) -> None:
        raw = [(name.encode("latin-1"), value.encode("latin-1"), sensitive) for name, value in headers]
        assert self.second.decode(self.their_encoder.encode(raw, huffman=huffman)) == headers

    @rule(sizes=st.lists(st.sampled_from([0, 33, 40, 100, 300, 1000, 4096, 9000]), min_size=1, max_size=3))
    def resize(self, sizes: list[int]) -> None:
        for size in sizes:
            self.encoder.resize(size)

    @rule(size=st.sampled_from([0, 33, 40, 100, 300, 1000, 4096]))
    def resize_theirs(self, size: int) -> None:
        self.their_encoder.header_table_size = size
        # It tells all sizes since the last block, where two are allowed.
        assert self.second.decode(self.their_encoder.encode([])) == []

    @invariant()
    def tables_are_bounded_and_equal(self) -> None:
        assert self.decoder.table_bytes <= 4096
        assert self.decoder.table_bytes == self.their_decoder.header_table._current_size
        assert self.second.table_bytes == self.their_encoder.header_table._current_size


TestTablesInStep = TablesInStep.TestCase
TestTablesInStep.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.binary(max_size=80), max_size=5), st.integers(0, 300))
def test_random_blocks_hold_no_more_than_the_limits(some: list[bytes], limit: int) -> None:
    read_within_limits(some, limit)


@given(
    st.lists(st.sampled_from([*C3, *C4, *C5, *C6]).map(bytes.fromhex), min_size=1, max_size=6),
    st.integers(0, 400),
    st.randoms(use_true_random=False),
)
def test_mutated_blocks_hold_no_more_than_the_limits(some: list[bytes], limit: int, chance: random.Random) -> None:
    mutated = []
    for block in some:
        changed = bytearray(block)
        for _ in range(chance.randrange(3)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        mutated.append(bytes(changed[: chance.randrange(len(changed) + 1)] if chance.random() < 0.3 else changed))
    read_within_limits(mutated, limit)


def read_within_limits(some: list[bytes], limit: int) -> None:
    """Read blocks with our decoder and the oracle's: what ours reads the oracle's reads alike."""
    decoder = HeaderDecoder(max_table_bytes=256, max_list_bytes=limit)
    theirs = oracle.Decoder(max_header_list_size=1 << 20)
    theirs.max_allowed_table_size = 256
    theirs.header_table.maxsize = 256
    for block in some:
        try:
            headers = decoder.decode(block)
        except HeaderListTooLarge:
            theirs.decode(block, raw=True)
            continue
        except HpackError:
            return
        finally:
            assert decoder.table_bytes <= 256
        assert sum(len(name) + len(value) + 32 for name, value in headers) <= limit
        expected = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in theirs.decode(block, raw=True)]
        assert headers == expected
        assert decoder.table_bytes == theirs.header_table._current_size
