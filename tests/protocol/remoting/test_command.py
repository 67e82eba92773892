from __future__ import annotations

import json
import struct
from contextlib import suppress

import pytest
from command_strategies import commands
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ConnectionFailed
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    HeaderType,
    RemotingCommand,
    decode_header,
    encode_header,
)


@given(commands)
def test_a_header_reads_as_it_was_written_in_both_encodings(command: RemotingCommand) -> None:
    assert decode_header(command.header_type, encode_header(command)) == command


@given(st.binary(max_size=300), st.integers(0, 255))
def test_no_bytes_make_the_decoder_fail_in_another_way_than_protocol_violation(header: bytes, kind: int) -> None:
    with suppress(ConnectionFailed):
        decode_header(kind, header)


@given(commands, st.integers(0, 400), st.integers(0, 255))
def test_a_spoiled_byte_gives_a_command_or_a_protocol_violation(
    command: RemotingCommand, position: int, value: int
) -> None:
    header = bytearray(encode_header(command))
    header[position % len(header)] = value
    with suppress(ConnectionFailed):
        decode_header(command.header_type, bytes(header))


def test_numbers_and_booleans_in_ext_fields_become_text_and_null_is_absent() -> None:
    header = b'{"code":310,"opaque":7,"extFields":{"queueId":0,"m":false,"r":1.5,"n":null,"s":"x"}}'
    assert decode_header(0, header).ext == {"queueId": "0", "m": "false", "r": "1.5", "s": "x"}


def test_unknown_keys_are_passed_over_and_missing_ones_have_defaults() -> None:
    command = decode_header(0, b'{"code":105,"newThing":{"a":[1]},"serializeTypeCurrentRPC":"JSON"}')
    assert command == RemotingCommand(105, language="OTHER", version=0)


def test_a_language_that_is_no_text_or_unknown_is_other() -> None:
    assert decode_header(0, b'{"code":1,"language":3}').language == "OTHER"
    binary = bytearray(encode_header(RemotingCommand(1, header_type=HeaderType.BINARY)))
    binary[2] = 99
    assert decode_header(1, bytes(binary)).language == "OTHER"


def test_ext_fields_are_written_as_text_even_where_there_are_none() -> None:
    assert json.loads(encode_header(RemotingCommand(105).response()))["extFields"] == {}


def test_an_answer_mirrors_opaque_and_header_type_and_is_a_response() -> None:
    for kind in HeaderType:
        answer = RemotingCommand(310, opaque=-5, header_type=kind, flag=FLAG_ONEWAY).response(17, remark="no")
        assert (answer.opaque, answer.header_type, answer.flag) == (-5, kind, FLAG_RESPONSE)
        assert answer.is_response
        assert not answer.is_oneway


def test_a_text_of_no_bytes_in_a_binary_header_reads_as_absent() -> None:
    ext = struct.pack(">h1si", 1, b"a", 0) + struct.pack(">h1si1s", 1, b"b", 1, b"x")
    header = struct.pack(">hBhiii", 10, 0, 401, 1, 0, 0) + struct.pack(">i", len(ext)) + ext
    command = decode_header(1, header)
    assert (command.ext, command.remark) == ({"b": "x"}, None)


@pytest.mark.parametrize("code", [200050, -40000])
def test_a_code_that_does_not_fit_a_binary_header_is_not_written(code: int) -> None:
    with pytest.raises(ValueError, match=str(code)):
        encode_header(RemotingCommand(code, header_type=HeaderType.BINARY))


@pytest.mark.parametrize(
    "header",
    [
        struct.pack(">hBhiii", 1, 0, 1, 1, 0, -1),
        struct.pack(">hBhiii", 1, 0, 1, 1, 0, 2**31 - 1),
        struct.pack(">hBhiiii", 1, 0, 1, 1, 0, 0, -4),
        struct.pack(">hBhiiii", 1, 0, 1, 1, 0, 0, 5),
        struct.pack(">hBhiiiih", 1, 0, 1, 1, 0, 0, 2, -1),
        struct.pack(">hBhiiiih", 1, 0, 1, 1, 0, 0, 2, 30000),
        b"",
    ],
)
def test_hostile_lengths_in_a_binary_header_are_refused(header: bytes) -> None:
    with pytest.raises(ConnectionFailed):
        decode_header(1, header)


def test_json_nested_without_end_is_refused() -> None:
    with pytest.raises(ConnectionFailed):
        decode_header(0, b'{"code":1,"extFields":{"a":' + b"[" * 60_000)


def test_every_request_has_a_code_of_its_own() -> None:
    # Two names of one number would be one member: a pop between brokers handed a set over.
    assert RequestCode.SEGMENT_POP != RequestCode.HAND_OVER
    assert len(RequestCode.__members__) == len({int(code) for code in RequestCode})
