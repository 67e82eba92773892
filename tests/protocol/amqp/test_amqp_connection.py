from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_peer import CLIENT, HELLO, answer, new_core, open_core, publication, read_frames, read_methods
from millstream.protocol.amqp.basic_methods import BasicAck, BasicDeliver, BasicPublish, BasicQos, BasicQosOk
from millstream.protocol.amqp.connection import (
    FIRST_FRAME_BYTES,
    HANDSHAKE_LIMIT_S,
    AmqpCore,
    AmqpLimits,
    ChannelContent,
    ChannelEnd,
    ChannelMethod,
    ConnectionEnd,
    HostRequest,
    LoginRequest,
    SecretUpdate,
)
from millstream.protocol.amqp.content import ContentProperties, decode_properties, encode_properties
from millstream.protocol.amqp.content_intake import MAX_PROPERTY_BYTES
from millstream.protocol.amqp.frames import (
    BODY,
    CONTENT_HEADER,
    FRAME_OVERHEAD_BYTES,
    HEADER,
    HEARTBEAT_FRAME,
    METHOD,
    PROTOCOL_HEADER,
    content_frames,
    frame,
    method_frame,
)
from millstream.protocol.amqp.method_codec import encode_method
from millstream.protocol.amqp.reply_codes import AmqpFailure, ChannelFailure, ConnectionFailure, ReplyCode
from millstream.protocol.amqp.session_methods import (
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelOpen,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
)


def test_a_connection_opens_by_header_login_tune_and_host() -> None:
    core = new_core()
    assert core.receive(HELLO[0], 0.0) == []
    (start,) = read_methods(core)
    assert isinstance(start, ConnectionStart)
    assert start.mechanisms == b"PLAIN AMQPLAIN"
    assert start.server_properties["capabilities"]["publisher_confirms"] is True
    assert core.receive(HELLO[1], 0.0) == [LoginRequest("PLAIN", b"\0guest\0guest", CLIENT)]
    core.accept_login()
    assert read_methods(core) == [ConnectionTune(2047, 131_072, 60)]
    assert core.receive(HELLO[2], 0.0) == []
    assert core.receive(HELLO[3], 0.0) == [HostRequest("/")]
    core.accept_host()
    assert read_methods(core) == [ConnectionOpenOk()]
    assert core.is_open
    assert core.heartbeat_s == 60


@pytest.mark.parametrize("first", [b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00", b"GET / HTTP/1.1\r\n", b"X"])
def test_a_client_of_another_protocol_is_told_the_version_and_nothing_else(first: bytes) -> None:
    core = new_core()
    assert core.receive(first, 0.0) == [ConnectionEnd()]
    assert core.take_outgoing(0.0) == PROTOCOL_HEADER
    assert core.is_over


def talk(core: AmqpCore, data: bytes, size: int) -> list[object]:
    found: list[object] = []
    for at in range(0, len(data), size):
        events = core.receive(data[at : at + size], 0.0)
        answer(core, events)
        found += events
    return found


TALK = b"".join(
    (
        *HELLO,
        method_frame(1, ChannelOpen()),
        method_frame(1, BasicQos(prefetch_count=7)),
        publication(1, b"x" * 5000, frame_bytes=4096),
        publication(1, b""),
        HEARTBEAT_FRAME,
        method_frame(1, BasicAck(9, True)),
        method_frame(1, ChannelClose()),
    )
)


@pytest.mark.parametrize("size", [1, 2, 7, 1000, len(TALK)])
def test_events_are_the_same_wherever_the_bytes_are_cut(size: int) -> None:
    if size > len(HELLO[0]):
        core = open_core()
        found, data = [None, None], TALK[len(b"".join(HELLO)) :]
    else:
        core, found, data = new_core(), [], TALK
    found += talk(core, data, size)
    opened, qos, large, empty, ack, close = found[2:]
    assert opened == ChannelMethod(1, ChannelOpen())
    assert qos == ChannelMethod(1, BasicQos(prefetch_count=7))
    assert isinstance(large, ChannelContent)
    assert (large.publication.exchange, large.publication.routing_key) == ("e", "k")
    assert large.publication.body == b"x" * 5000
    assert isinstance(empty, ChannelContent)
    assert empty.publication.body == b""
    assert ack == ChannelMethod(1, BasicAck(9, True))
    assert close == ChannelMethod(1, ChannelClose())
    assert core.held_bytes == 0


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_changed_bytes_never_raise_and_what_is_answered_is_whole(seed: int, changes: int) -> None:
    chance = random.Random(seed)
    data = bytearray(TALK)
    for _ in range(changes):
        data[chance.randrange(len(data))] = chance.randrange(256)
    core = new_core()
    talk(core, bytes(data), chance.choice((1, 50, 500)))
    outgoing = core.take_outgoing(0.0)
    if not outgoing.startswith(PROTOCOL_HEADER):
        read_frames(outgoing)


@given(st.binary(max_size=200))
def test_random_bytes_behind_the_opening_never_raise(data: bytes) -> None:
    core = open_core(1)
    core.receive(data, 0.0)
    read_frames(core.take_outgoing(0.0))


def failure_of(core: AmqpCore, data: bytes) -> ConnectionFailure:
    events = core.receive(data, 0.0)
    assert events[-1] == ConnectionEnd()
    assert core.failure is not None
    close = read_methods(core)[-1]
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == core.failure.code
    assert close.reply_text.startswith(core.failure.code.name)
    return core.failure


OPENED = method_frame(1, ChannelOpen())
HEAD = CONTENT_HEADER.pack(60, 0, 5) + b"\0\0"
PUBLISH = method_frame(1, BasicPublish())


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (HEARTBEAT_FRAME[:-1] + b"\0", ReplyCode.FRAME_ERROR),
        (b"\x01\x00\x00\xff\xff\xff\xff\x00", ReplyCode.FRAME_ERROR),
        (frame(HEADER, 1, HEAD), ReplyCode.UNEXPECTED_FRAME),
        (frame(BODY, 1, b"x"), ReplyCode.UNEXPECTED_FRAME),
        (PUBLISH + frame(BODY, 1, b"x"), ReplyCode.UNEXPECTED_FRAME),
        (PUBLISH + PUBLISH, ReplyCode.UNEXPECTED_FRAME),
        (PUBLISH + frame(HEADER, 1, HEAD) + frame(BODY, 1, b"x" * 6), ReplyCode.UNEXPECTED_FRAME),
        (PUBLISH + frame(HEADER, 1, CONTENT_HEADER.pack(50, 0, 5) + b"\0\0"), ReplyCode.UNEXPECTED_FRAME),
        (PUBLISH + frame(HEADER, 1, b"short"), ReplyCode.SYNTAX_ERROR),
        (frame(METHOD, 1, b"\0\x3c\0\x28\0\0\xff"), ReplyCode.SYNTAX_ERROR),
        (frame(METHOD, 1, b"\0\x3c\0\x28\0\0\0\0"), ReplyCode.SYNTAX_ERROR),
        (frame(METHOD, 1, b"\0\x3c"), ReplyCode.SYNTAX_ERROR),
        (frame(METHOD, 1, b"\0\x32\0\x0a\0\0"), ReplyCode.SYNTAX_ERROR),
        (frame(METHOD, 1, b"\0\x63\0\x63"), ReplyCode.COMMAND_INVALID),
        (method_frame(1, BasicDeliver()), ReplyCode.COMMAND_INVALID),
        (method_frame(1, ConnectionOpen()), ReplyCode.COMMAND_INVALID),
        (method_frame(0, ConnectionOpen()), ReplyCode.COMMAND_INVALID),
        (method_frame(0, BasicQos()), ReplyCode.COMMAND_INVALID),
        (OPENED, ReplyCode.CHANNEL_ERROR),
        (method_frame(2, BasicQos()), ReplyCode.CHANNEL_ERROR),
        (frame(HEADER, 2, HEAD), ReplyCode.CHANNEL_ERROR),
        (method_frame(2048, ChannelOpen()), ReplyCode.NOT_ALLOWED),
        (frame(9, 1, b""), ReplyCode.UNEXPECTED_FRAME),
        (frame(8, 0, b"x"), ReplyCode.UNEXPECTED_FRAME),
        (frame(8, 1, b""), ReplyCode.UNEXPECTED_FRAME),
    ],
)
def test_who_breaks_a_rule_of_the_connection_is_told_which_by_its_code(data: bytes, code: ReplyCode) -> None:
    core = open_core(1)
    assert failure_of(core, data).code is code


def test_after_a_failure_all_is_passed_over_until_the_peer_has_answered() -> None:
    core = open_core(1)
    failure_of(core, method_frame(2, BasicQos()))
    assert core.receive(method_frame(1, BasicQos()) + method_frame(0, ConnectionTuneOk()), 0.0) == []
    assert not core.is_over
    assert core.receive(method_frame(0, ConnectionCloseOk()), 0.0) == [ConnectionEnd()]
    assert core.is_over
    assert core.receive(method_frame(1, BasicQos()), 0.0) == []


def test_a_channel_that_fails_passes_over_what_comes_until_its_peer_has_answered() -> None:
    core = open_core(1, 2)
    core.fail_channel(1, ChannelFailure(ReplyCode.NOT_FOUND, "no queue 'q' in vhost '/'"), (50, 10))
    core.send(1, BasicQosOk())
    assert read_methods(core) == [ChannelClose(404, "NOT_FOUND - no queue 'q' in vhost '/'", 50, 10)]
    assert core.receive(publication(1, b"late") + method_frame(2, BasicQos()), 0.0) == [ChannelMethod(2, BasicQos())]
    assert core.receive(method_frame(1, ChannelCloseOk()) + OPENED, 0.0) == [ChannelMethod(1, ChannelOpen())]


def test_both_sides_may_close_a_channel_at_once() -> None:
    core = open_core(1)
    core.fail_channel(1, ChannelFailure(ReplyCode.NOT_FOUND, "x"))
    core.take_outgoing(0.0)
    assert core.receive(method_frame(1, ChannelClose()) + method_frame(1, ChannelCloseOk()), 0.0) == []
    assert read_methods(core) == [ChannelCloseOk()]
    assert core.receive(OPENED, 0.0) == [ChannelMethod(1, ChannelOpen())]


def test_a_channel_that_its_peer_closes_can_be_opened_again() -> None:
    core = open_core(1)
    assert core.receive(method_frame(1, ChannelClose()), 0.0) == [ChannelMethod(1, ChannelClose())]
    core.end_channel(1)
    assert read_methods(core) == [ChannelCloseOk()]
    assert core.receive(OPENED, 0.0) == [ChannelMethod(1, ChannelOpen())]


@pytest.mark.parametrize(
    "head",
    [
        CONTENT_HEADER.pack(60, 0, 101) + b"\0\0",
        CONTENT_HEADER.pack(60, 0, 2**64 - 1) + b"\0\0",
        CONTENT_HEADER.pack(60, 0, 5) + b"\0" * (MAX_PROPERTY_BYTES + 1),
    ],
)
def test_a_message_over_the_limits_ends_its_channel_before_its_body_is_read(head: bytes) -> None:
    core = open_core(1, 2, limits=AmqpLimits(max_body_bytes=100))
    found = core.receive(PUBLISH + frame(HEADER, 1, head) + frame(BODY, 1, b"x" * 50), 0.0)
    assert found == [ChannelEnd(1)]
    (close,) = read_methods(core)
    assert isinstance(close, ChannelClose)
    assert (close.reply_code, close.failed_class, close.failed_method) == (311, 60, 40)
    assert core.receive(frame(BODY, 1, b"x" * 50), 0.0) == []
    assert core.held_bytes == 0


@pytest.mark.parametrize(
    "wish", [ConnectionTuneOk(4000, 0, 0), ConnectionTuneOk(0, 200_000, 0), ConnectionTuneOk(0, 100, 0)]
)
def test_a_client_may_not_take_more_than_it_is_offered(wish: ConnectionTuneOk) -> None:
    core = new_core()
    for data in HELLO[:2]:
        answer(core, core.receive(data, 0.0))
    assert failure_of(core, method_frame(0, wish)).code is ReplyCode.NOT_ALLOWED


def test_frames_before_the_agreement_are_small() -> None:
    core = new_core()
    core.receive(HELLO[0], 0.0)
    assert failure_of(core, frame(METHOD, 0, b"x" * FIRST_FRAME_BYTES)).code is ReplyCode.FRAME_ERROR


def test_channels_are_opened_in_open_connections_only() -> None:
    core = new_core()
    core.receive(HELLO[0], 0.0)
    assert failure_of(core, OPENED).code is ReplyCode.COMMAND_INVALID


def test_a_refused_login_is_told_to_clients_that_understand_it() -> None:
    core = new_core()
    for data in HELLO[:2]:
        core.receive(data, 0.0)
    core.take_outgoing(0.0)
    core.refuse_login("the user or the secret is wrong")
    (close,) = read_methods(core)
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == 403
    assert not core.is_over


def test_a_refused_login_ends_other_connections_without_a_word() -> None:
    core = new_core()
    core.receive(HELLO[0] + method_frame(0, ConnectionStartOk(response=b"\0a\0b")), 0.0)
    core.take_outgoing(0.0)
    core.refuse_login("the user or the secret is wrong")
    assert core.take_outgoing(0.0) == b""
    assert core.is_over


def test_the_peer_closes_the_connection() -> None:
    core = open_core(1)
    assert core.receive(method_frame(0, ConnectionClose()), 0.0) == [ConnectionEnd()]
    assert read_methods(core) == [ConnectionCloseOk()]
    assert core.is_over


def test_a_peer_that_is_silent_for_two_heartbeats_is_given_up() -> None:
    core = open_core(heartbeat_s=10)
    assert core.tick(19.9)
    assert not core.tick(20.0)
    core.receive(HEARTBEAT_FRAME, 20.0)
    assert core.tick(39.9)


def test_this_side_sends_a_heartbeat_when_it_has_said_nothing_for_half_an_interval() -> None:
    core = open_core(heartbeat_s=10)
    core.tick(4.9)
    assert core.take_outgoing(4.9) == b""
    core.tick(5.0)
    assert core.take_outgoing(5.0) == HEARTBEAT_FRAME
    core.tick(9.9)
    assert core.take_outgoing(9.9) == b""


def test_without_heartbeats_silence_is_no_end() -> None:
    core = open_core(heartbeat_s=0)
    assert core.tick(1e6)
    assert core.take_outgoing(1e6) == b""


def test_a_connection_that_does_not_come_to_open_is_given_up() -> None:
    core = new_core()
    core.receive(HELLO[0], 9.0)
    assert core.tick(HANDSHAKE_LIMIT_S - 0.1)
    assert not core.tick(HANDSHAKE_LIMIT_S)


def test_a_client_that_understands_it_is_told_once_that_messages_must_wait() -> None:
    core = open_core()
    core.block("the disk is full")
    core.block("the disk is full")
    core.unblock()
    core.unblock()
    assert read_methods(core) == [ConnectionBlocked("the disk is full"), ConnectionUnblocked()]


def test_new_credentials_are_handed_on() -> None:
    core = open_core()
    data = method_frame(0, ConnectionUpdateSecret(b"new", "old one expires"))
    assert core.receive(data, 0.0) == [SecretUpdate(b"new")]


def test_flow_is_a_method_of_its_channel() -> None:
    core = open_core(1)
    assert core.receive(method_frame(1, ChannelFlow(False)), 0.0) == [ChannelMethod(1, ChannelFlow(False))]


@given(st.integers(0, 30_000), st.sampled_from([4096, 8192, 131_072]))
def test_content_is_cut_to_the_agreed_frames(size: int, frame_bytes: int) -> None:
    data = content_frames(1, encode_method(BasicDeliver("c", 1, False, "e", "k")), b"\0\0", b"b" * size, frame_bytes)
    frames = read_frames(data)
    assert [kind for kind, _, _ in frames[:2]] == [METHOD, HEADER]
    assert b"".join(payload for _, _, payload in frames[2:]) == b"b" * size
    assert all(0 < len(payload) + 8 <= frame_bytes for _, _, payload in frames)


SHORT = st.none() | st.text(max_size=40)
PROPERTIES = st.builds(
    ContentProperties,
    *(SHORT, SHORT),
    st.none() | st.just(b"\0\0\0\3\1aV"),
    *(st.none() | st.integers(0, 255), st.none() | st.integers(0, 255)),
    *(SHORT,) * 4,
    st.none() | st.integers(0, 2**64 - 1),
    *(SHORT,) * 4,
)


@given(PROPERTIES)
def test_properties_come_back_as_they_were(properties: ContentProperties) -> None:
    data = encode_properties(properties)
    assert decode_properties(data) == properties
    for size in range(len(data)):
        with pytest.raises(ConnectionFailure):
            decode_properties(data[:size])


@pytest.mark.parametrize("data", [b"\0\1\0\0", b"\0\2", b"\0\0x", b"\x20\0\0\0\0\5"])
def test_properties_with_unknown_flags_or_too_many_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ConnectionFailure) as error:
        decode_properties(data)
    assert error.value.code is ReplyCode.SYNTAX_ERROR


def test_a_reply_text_is_cut_to_a_short_string_between_characters() -> None:
    text = AmqpFailure(ReplyCode.NOT_FOUND, "é" * 200).text
    assert text.startswith("NOT_FOUND - é")
    assert 250 < len(text.encode()) <= 255


def test_a_message_that_is_not_whole_is_measured_and_forgotten_with_its_connection() -> None:
    core = open_core(1)
    core.receive(publication(1, b"x" * 1000, frame_bytes=108)[: -5 * 108], 0.0)
    held, missing = core.held_bytes, core.missing_bytes
    assert held
    assert held + missing == 1000
    core.forget()
    assert (core.held_bytes, core.missing_bytes, core.take_outgoing(0.0)) == (0, 0, b"")


def test_what_is_held_of_messages_is_let_go_with_their_channels() -> None:
    core = open_core(1, 2, 3)
    for channel in (1, 2, 3):
        frames = publication(channel, b"x" * 10_000, frame_bytes=4096)
        # Two frames of the body, of 4,088 bytes each; the last one is left out.
        core.receive(frames[: -(1824 + FRAME_OVERHEAD_BYTES)], 0.0)
    assert (core.held_bytes, core.missing_bytes) == (3 * 8176, 3 * 1824)
    core.fail_channel(1, ChannelFailure(ReplyCode.NOT_FOUND, "gone"))
    core.end_channel(2)
    assert (core.held_bytes, core.missing_bytes) == (8176, 1824)


def test_a_message_that_comes_whole_leaves_nothing_held() -> None:
    core = open_core(1)
    for size in (0, 1, 4088, 4089, 20_000):
        frames = publication(1, b"x" * size, frame_bytes=4096)
        for at in range(0, len(frames), 100):
            core.receive(frames[at : at + 100], 0.0)
        assert (core.held_bytes, core.missing_bytes) == (0, 0)
