"""Inputs for the hot modules, by chance, and what comes of them: `python -m crash.hot_cases` answers for one form.

It runs from two directories, one with the compiled package, and says for each line `KIND SEED BLOCK` of its input the
digest of the outcomes of that block's inputs, or with a fourth word the outcome of each.
"""

from __future__ import annotations

import json
import logging
import random
import re
import sys
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final
from zlib import crc32

from crash.hot_port_cases import amqp_frames, mqtt_packets, run_amqp, run_mqtt, run_timeouts, timeouts
from millstream.broker.queues.ledger import Ledger
from millstream.broker.remoting.ordinary_sends import accept_run, read_ordinary_sends, read_properties
from millstream.hot_modules import look_at_hot_path
from millstream.model.errors import ConnectionFailed
from millstream.model.handles import ReceiptHandle
from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.model.operations import PoppedMessage
from millstream.model.topic import TopicConfig
from millstream.protocol.checksum import checksum_property
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.plain_ack import encode_ack_answer, handle_of, read_plain_ack
from millstream.protocol.grpc.plain_send import read_plain_send
from millstream.protocol.http2.connection import Http2Core, Http2Limits
from millstream.protocol.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PREFACE,
    ErrorCode,
    SettingId,
    frame_header,
    goaway_frame,
    ping_frame,
    reset_frame,
    settings_frame,
    window_frame,
)
from millstream.protocol.http2.hpack import Header, HeaderDecoder, HeaderEncoder
from millstream.protocol.http2.request_head import HeadMalformed, read_request_head
from millstream.protocol.http2.stream import ENDED
from millstream.protocol.message_run import decode_run
from millstream.protocol.record import decode_record, encode_record
from millstream.protocol.record_encoder import RecordEncoder
from millstream.protocol.remoting.command import LANGUAGES, HeaderType, RemotingCommand, decode_json, encode_header
from millstream.protocol.remoting.frame import FrameDecoder, encode_frame
from millstream.protocol.remoting.messages.sends import SendAnswers
from millstream.protocol.remoting.pull_shape import ShapedPull, learn_pull
from millstream.protocol.remoting.request_shape import ShapedRun
from millstream.protocol.remoting.send_shape import learn_send
from millstream.protocol.remoting.shape_memory import ShapeMemory
from millstream.proxy.grpc.message_encoder import MessageEncoder, RunEncoder
from millstream.store.consume_queue import ENTRY
from millstream.store.index.record_keys import keys_of, walked_records
from millstream.store.record_run import copy_checked_run, copy_records, is_checked_run
from millstream.tiered.queue_records import GatheredRecords, places_of, split_records

__all__ = ["BLOCK_CASES", "KINDS"]

BLOCK_CASES: Final = 1000
"""Inputs of a block, whose outcomes are compared together."""

_TELLING: Final = (0x00, 0x01, 0x0A, 0x12, 0x1A, 0x22, 0x7E, 0x7F, 0x80, 0x81, 0xC3, 0xFE, 0xFF)
"""Bytes at which a length, a tag or a text turns into another."""

_MAX_CHANGES: Final = 4
_MAX_MOVED_BYTES: Final = 12

Run = Callable[[bytes], object]


def change(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """The data with up to four changes: bytes set, cut, doubled, inserted, or the end of another input."""
    changed = bytearray(data)
    for _ in range(int(chance.random() * (_MAX_CHANGES + 1))):
        size = len(changed)
        at = int(chance.random() * (size + 1))
        way = int(chance.random() * 8)
        if way < 3 and at < size:
            changed[at] = _TELLING[int(chance.random() * len(_TELLING))]
        elif way == 3 and at < size:
            changed[at] = (changed[at] + (1 if chance.random() < 0.5 else -1)) & 0xFF
        elif way == 4:
            del changed[at:]
        elif way == 5:
            del changed[at : at + 1 + int(chance.random() * _MAX_MOVED_BYTES)]
        elif way == 6:
            changed[at:at] = changed[max(0, at - 1 - int(chance.random() * _MAX_MOVED_BYTES)) : at]
        else:
            other = others[int(chance.random() * len(others))]
            changed[at:] = other[int(chance.random() * (len(other) + 1)) :]
    return bytes(changed)


def _text(chance: random.Random, most: int = 40) -> str:
    return "".join(chance.choices("abcXYZ019-_ ä€\U0001f600", k=int(chance.random() * most)))


def _sends(chance: random.Random) -> list[bytes]:
    """Requests as clients send them, with and without what an ordinary one has."""
    made = []
    for _ in range(24):
        system = m.SystemProperties(
            message_id=_text(chance) or "id",
            body_encoding=chance.choice((m.IDENTITY, m.GZIP, 0)),
            message_type=chance.choice((m.NORMAL, m.NORMAL, m.FIFO)),
            keys=[_text(chance) for _ in range(chance.randrange(3))],
        )
        if chance.random() < 0.5:
            system.tag = _text(chance)
        if chance.random() < 0.5:
            system.born_host = _text(chance, 150)
        if chance.random() < 0.7:
            system.born_timestamp.seconds = chance.randrange(1 << chance.randrange(1, 44))
            system.born_timestamp.nanos = chance.randrange(1_000_000_000)
        if chance.random() < 0.3:
            system.body_digest.type, system.body_digest.checksum = m.MD5, "ABC" * chance.randrange(60)
        message = m.Message(
            topic=m.Resource(name=_text(chance) or "orders"),
            body=chance.randbytes(chance.randrange(1, 300)),
            system_properties=system,
            user_properties={_text(chance): _text(chance, 200) for _ in range(chance.randrange(3))},
        )
        made.append(m.SendMessageRequest(messages=[message]).SerializeToString(deterministic=True))
    return made


_NAMES: Final = (
    ":method", ":scheme", ":path", ":authority", "content-type", "te", "user-agent", "x-mq-client-id", "authorization",
    "grpc-timeout", "content-length", "host", "connection", "x-bin", "a", "accept",
)  # fmt: skip
_VALUES: Final = (
    "POST", "GET", "CONNECT", "http", "/apache.rocketmq.v2.MessagingService/SendMessage", "127.0.0.1:8081", "trailers",
    "application/grpc", "grpc-python/1.85", "client@1", "3S", "12", "", " x", "x\x00", "\xe4", "0" * 130,
)  # fmt: skip
_REQUEST: Final = (
    (":method", "POST"), (":scheme", "http"), (":path", "/p"), (":authority", "h:1"), ("te", "trailers"),
    ("content-type", "application/grpc"),
)  # fmt: skip


def _header_lists(chance: random.Random) -> list[tuple[Header, ...]]:
    lists = []
    for _ in range(8):
        others = [(chance.choice(_NAMES), chance.choice(_VALUES)) for _ in range(chance.randrange(6))]
        lists.append((*(_REQUEST if chance.random() < 0.8 else ()), *others))
    return lists


def _blocks(chance: random.Random) -> list[bytes]:
    """Blocks of headers, each list three times by one encoder: new, known, and after a change of the table's size."""
    made = []
    for headers in _header_lists(chance):
        encoder = HeaderEncoder()
        made += [encoder.encode(headers), encoder.encode(headers)]
        encoder.resize(chance.randrange(200))
        made.append(encoder.encode(headers))
    return made


def _run_block(data: bytes) -> object:
    decoder = HeaderDecoder(max_list_bytes=600)
    decoder.decode(_FIRST_BLOCK)
    headers = decoder.decode(data)
    again = HeaderEncoder()
    written = again.encode(headers)
    found = [headers, decoder.table_bytes, written, again.encode(headers), again.table_bytes, again.changes]
    try:
        head = read_request_head(headers)
    except HeadMalformed as error:
        return [*found, str(error)]
    return [*found, head.method, head.scheme, head.path, head.authority, head.metadata, head.content_length]


_FIRST_BLOCK: Final = HeaderEncoder().encode(_REQUEST)


def _frames(chance: random.Random) -> list[bytes]:
    """What peers send behind their preface: requests in one frame and in several, window updates, settings, pings."""
    made = []
    for headers in _header_lists(chance):
        encoder, stream, written = HeaderEncoder(), 1, b""
        for _ in range(chance.randrange(1, 5)):
            block, body = encoder.encode(headers), chance.randbytes(chance.randrange(60))
            if chance.random() < 0.2:
                cut = chance.randrange(len(block) + 1)
                written += frame_header(cut, HEADERS, 0, stream) + block[:cut]
                written += frame_header(len(block) - cut, CONTINUATION, END_HEADERS, stream) + block[cut:]
            else:
                written += frame_header(len(block), HEADERS, END_HEADERS, stream) + block
            padding = chance.randrange(4)
            content = bytes((padding,)) + body + bytes(padding) if padding else body
            flags = END_STREAM | (PADDED if padding else 0)
            written += frame_header(len(content), DATA, flags, stream) + content
            written += chance.choice(
                (
                    b"",
                    window_frame(0, chance.randrange(100_000)),
                    window_frame(stream, chance.randrange(1 << 31)),
                    reset_frame(stream, 8),
                    ping_frame(b"12345678"),
                    settings_frame(((chance.choice([*SettingId]), chance.randrange(70_000)),)),
                    goaway_frame(0, 0),
                )
            )
            stream += 2
        made.append(written)
    return made


_RESPONSE: Final = ((":status", "200"), ("content-type", "application/grpc"))
_TRAILERS: Final = (("grpc-status", "0"),)


def _run_connection(data: bytes) -> object:
    core = Http2Core(Http2Limits(max_streams=3, max_frame_bytes=16_384, max_header_list_bytes=600))
    found: list[object] = []
    start = PREFACE + settings_frame(((SettingId.INITIAL_WINDOW_SIZE, 50),))
    # In three chunks, so that frames lie across their ends.
    cuts = (0, len(data) // 3, len(data) // 2, len(data))
    for chunk in (start, *(data[one:other] for one, other in pairwise(cuts))):
        for stream in core.receive(chunk, 1.0):
            news, stream.news = stream.news, 0
            head = stream.head
            found += [stream.number, news, head.path, head.metadata, stream.take_inbox(), stream.received_bytes]
            if news & ENDED:
                way = stream.number % 8
                if way == 1:
                    core.send_whole(stream, _RESPONSE, b"x" * 40, _TRAILERS)
                elif way == 3:
                    core.send_headers(stream, _RESPONSE)
                    core.send_data(stream, b"y" * 90, _TRAILERS)
                elif way == 5:
                    core.send_headers(stream, _RESPONSE, ends=True)
                else:
                    core.reset(stream, ErrorCode.CANCEL)
        found.append(b"".join(core.take_outgoing()))
        found += [core.queued_bytes, core.held_bytes, core.is_leaving, sorted(core.streams)]
    return [*found, core.failure]


_FIELDS: Final = {
    "a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000005", "h": "0",
    "i": "UNIQ_KEY\x01id\x02", "j": "0", "k": "false", "l": "0", "m": "false",
}  # fmt: skip
_ODD_TEXTS: Final = (
    "",
    "0",
    "1",
    "9" * 12,
    "-1",
    "true",
    "orders",
    "KEYS\x01a b\x02TAGS\x01t\x02x",
    "\xe4\u20ac",
    "z" * 300,
)
_TOPIC: Final = TopicConfig("orders")
_PEER: Final = Address("192.0.2.7", 50312)
_ANSWERS: Final = SendAnswers("7F00000100002A9F")


def _remoting_frames(chance: random.Random) -> list[bytes]:
    """Three requests one behind the other, in both encodings, ordinary sends and others."""
    made = []
    for _ in range(24):
        written = b""
        for opaque in range(3):
            ext = dict(_FIELDS)
            if chance.random() < 0.4:
                ext[chance.choice([*_FIELDS, "bornHost", "x"])] = chance.choice(_ODD_TEXTS)
            command = RemotingCommand(
                chance.choice((310, 310, 310, 10, -1)),
                ext,
                chance.randbytes(chance.randrange(60)),
                chance.randrange(1 << 31) + opaque,
                remark=chance.choice((None, "", "words")),
                language=chance.choice(LANGUAGES),
                header_type=chance.choice([*HeaderType]),
            )
            written += b"".join(encode_frame(command))
        made.append(written)
    return made


def _run_remoting(data: bytes) -> object:
    decoder = FrameDecoder(shapes=ShapeMemory(learns=True))
    commands: list[RemotingCommand] = []
    half = len(data) // 2
    try:
        for chunk in (data[:half], data[half:]):
            commands.extend(decoder.feed(chunk))
    except ConnectionFailed as error:
        return commands, str(error)
    sends = read_ordinary_sends(commands, 0, _TOPIC, _PEER)
    runs = list(FrameDecoder(shapes=ShapeMemory(learns=True)).feed_runs(data))
    accepted = [accept_run(run, _TOPIC, _PEER) for run in runs if isinstance(run, ShapedRun)]
    for number, send in enumerate(sends):
        send.queue_offset, send.log_offset = len(data) * number, int.from_bytes(data[:6], "big")
    again = [b"".join(encode_frame(command)) for command in commands if command.header_type is HeaderType.BINARY]
    encoder = RecordEncoder(len(data), _PEER)
    records = [
        _outcome(encoder.encode_plain, send, number, len(data) << 20, b"m\x01o\x02" * (number % 2))
        for number, send in enumerate(sends)
    ]
    return commands, decoder.held_bytes, sends, accepted, _ANSWERS.frames(sends), again, records


_RECORD_PROPERTIES: Final = (
    "UNIQ_KEY", "TAGS", "KEYS", "__SHARDINGKEY", "TIMER_DELIVER_MS", "DELAY", "_SYS_MSG_PRIORITY_", "__LITE_TOPIC",
    "TRACE_CONTEXT", "__BORNHOST", "DLQ_ORIGIN_TOPIC", "TRAN_MSG", "own", "\xe4",
)  # fmt: skip


def _records(chance: random.Random) -> list[bytes]:
    """Records of all kinds of messages, behind eight bytes that say how one is delivered."""
    made = []
    for _ in range(24):
        held = {
            name: chance.choice(("1", _text(chance), "7" * 15)) for name in _RECORD_PROPERTIES if chance.random() < 0.3
        }
        message = OutgoingMessage(
            _text(chance) or "orders",
            chance.randbytes(chance.randrange(200)),
            held,
            born_timestamp_ms=chance.randrange(1 << 43),
            born_host=chance.choice((_PEER, Address("2001:db8::1", 8))),
        )
        record = encode_record(
            message,
            queue_id=chance.randrange(9),
            queue_offset=chance.randrange(1 << chance.randrange(1, 60)),
            log_offset=chance.randrange(1 << 50),
            store_timestamp_ms=chance.randrange(1 << 43),
            store_host=_PEER,
        )
        made.append(chance.randbytes(8) + record)
    return made


_ENCODERS: Final = (MessageEncoder(m.Resource(name="orders")), MessageEncoder(m.Resource(name="x" * 140)))


def _run_record(data: bytes) -> object:
    # A size that was changed alone is put right, so that the parts behind it are read.
    record = len(data[8:]).to_bytes(4, "big") + data[12:]
    stored = decode_record(record, verify=False)
    number = int.from_bytes(data[:8], "big") >> 8
    handle = ReceiptHandle(
        number, number >> 2, number >> 20, 3, 0, "broker-a", stored.queue_id, number >> 5, number >> 7
    )
    popped = PoppedMessage(stored, handle, data[0] & 3)
    return [(one.frame(popped), one.message(stored)) for one in _ENCODERS]


def _ledger_steps(chance: random.Random) -> list[bytes]:
    """Four bytes a step: what is done, to which offset, with which handle, and how much later."""
    return [chance.randbytes(4 * chance.randrange(4, 40)) for _ in range(24)]


def _run_ledger(data: bytes) -> object:
    ledger, now_ms, found = Ledger(0, capacity=40), 1_000, []
    for at in range(0, len(data) - 3, 4):
        what, offset, back, later = data[at : at + 4]
        now_ms += later - 20
        found.append(_outcome(_take_step, data[at : at + 4], ledger, what % 10, offset % 24, now_ms, back % 40))
    return [
        *found,
        ledger.in_flight,
        ledger.cursor,
        ledger.committed,
        ledger.room,
        ledger.next_due_ms(),
        ledger.changed,
    ]


def _take_step(_: bytes, ledger: Ledger, what: int, offset: int, now_ms: int, back: int) -> object:
    # Handles are those of what is in flight, or near them.
    popped_ms = (
        next((held.pop_time_ms for held in ledger.in_flight if held.queue_offset == offset), now_ms) - back // 30
    )
    if what == 2:
        return ledger.deliver_run(ledger.cursor + back // 30, back % 4, now_ms, back)
    if what < 2:
        return ledger.deliver(ledger.cursor + back // 30, now_ms, back)
    if what == 3:
        due = ledger.peek_due(now_ms)
        return due if due is None else ledger.redeliver(due, now_ms, back)
    if what == 4:
        return ledger.change_invisible(offset, popped_ms, now_ms, back, uncounted=back % 2 == 0)
    if what == 5:
        return ledger.renew(offset, popped_ms, now_ms, back)
    if what == 6:
        ledger.shift(back - 20)
        return ledger.truncate(offset) if back == 0 else ledger.skip_to(offset // 4)
    if what == 7:
        return ledger.check_time(offset, popped_ms, now_ms)
    if what == 8:
        errors: dict[int, Any] = {}
        run = [(offset & 1, offset + number, popped_ms) for number in range(3)] + [(2, 0, 0)]
        end = ledger.acknowledge_run(run, back & 1, now_ms, errors)
        return end, {position: str(error) for position, error in errors.items()}
    return ledger.acknowledge(offset, popped_ms)


def _acks(chance: random.Random) -> list[bytes]:
    """Requests that acknowledge one to four deliveries, with handles as brokers give them, and others."""
    made = []
    for _ in range(24):
        entries = []
        for _ in range(chance.randrange(1, 5)):
            numbers = [chance.randrange(1 << chance.randrange(1, 60)) for _ in range(7)]
            handle = ReceiptHandle(
                *numbers[:3], 0, int(chance.random() < 0.1), "broker-a", numbers[3] & 7, *numbers[4:6]
            )
            entry = m.AckMessageEntry(receipt_handle=handle.encode())
            if chance.random() < 0.5:
                entry.message_id = chance.choice(("0" * 32, _text(chance)))
            entries.append(entry)
        request = m.AckMessageRequest(
            group=m.Resource(name=_text(chance) or "g"), topic=m.Resource(name="orders"), entries=entries
        )
        made.append(request.SerializeToString())
    return made


def _run_ack(data: bytes) -> object:
    read = read_plain_ack(data, b"broker-a", 4)
    if read is None:
        return None
    handles = [*map(handle_of, read[2])]
    return read, handles, encode_ack_answer(b"ok", read[2], [b"ok", b"ok", data[:200], b"ok"][: len(read[2])])


def _runs(chance: random.Random) -> list[bytes]:
    """Two to four records one behind the other, as a queue's stand in the log."""
    made = []
    for _ in range(24):
        log = b""
        for number in range(chance.randrange(2, 5)):
            held = {"UNIQ_KEY": _text(chance), "own": "1"} if chance.random() < 0.5 else {}
            if chance.random() < 0.5:
                held = {name: _text(chance) or "1" for name in (*_RECORD_PROPERTIES[:3], "PGROUP", "own")}
            message = OutgoingMessage("orders", chance.randbytes(chance.randrange(60)), held)
            log += encode_record(
                message, queue_id=0, queue_offset=7 + number, log_offset=(1 << 40) + len(log),
                store_timestamp_ms=1, store_host=_PEER,
            )  # fmt: skip
        made.append(log)
    return made


def _run_run(data: bytes) -> object:
    walked = _outcome(walked_records, data, int.from_bytes(data[28:36]) & (1 << 62) - 1), _outcome(keys_of, data)
    places, at = [], 0
    while at + 36 <= len(data) and len(places) < 5:
        size, log_offset = (
            int.from_bytes(data[at : at + 4], "big", signed=True),
            int.from_bytes(data[at + 28 : at + 36]),
        )
        places.append((log_offset & (1 << 62) - 1, size, 0))
        at += max(size, 36)
    if not places:
        return walked
    copied = copy_records(memoryview(data), 1 << 40, places, 500)
    packed = b"".join(ENTRY.pack(*place) for place in places)
    together = [copy_checked_run(memoryview(data), 1 << 40, packed, 5000, first) for first in (7, -1)]
    checked = is_checked_run(data, places, 7), is_checked_run(data, places, -1)
    written = [_outcome(one.encode, data, places, len(data) % 3, 16_380, 1 << 40, 30_000) for one in _RUN_ENCODERS]
    return walked, copied, checked, together, _outcome(decode_run, data, places), written


_RUN_ENCODERS: Final = (RunEncoder("orders", "broker-a"), RunEncoder("x" * 140, ""))


def _stretches(chance: random.Random) -> list[bytes]:
    """Two to six records of several queues one behind the other, as the log has them."""
    made = []
    for _ in range(24):
        log = b""
        for number in range(chance.randrange(2, 7)):
            held = {name: chance.choice(("1", "k1 k2", _text(chance))) for name in _KEY_NAMES if chance.random() < 0.5}
            message = OutgoingMessage(
                chance.choice(("orders", "x" * 140)),
                chance.randbytes(chance.randrange(60)),
                held,
                system_flag=SystemFlag(chance.choice((0, 0, 0x8, 0xC, 0x80))),
                born_host=chance.choice((_PEER, _PEER, Address("2001:db8::1", 8))),
            )
            log += encode_record(
                message, queue_id=chance.randrange(2), queue_offset=7 + number, log_offset=(1 << 40) + len(log),
                store_timestamp_ms=chance.randrange(1 << 43), store_host=_PEER,
            )  # fmt: skip
        made.append(log)
    return made


def _run_stretch(data: bytes) -> object:
    """The records as they are, and once more with sizes and checksums put right, so that what is behind is read."""
    return [_outcome(_gather, each) for each in (data, _mended(data))]


def _mended(data: bytes) -> bytes:
    """The bytes as one record that stands at the begin of its log, with the checksum that they should have."""
    body = data[: -len(checksum_property(0))]
    head = len(data).to_bytes(4, "big") + body[4:28] + (1 << 40).to_bytes(8, "big") + body[36:]
    return head + checksum_property(crc32(head))


def _gather(data: bytes) -> object:
    gathered = GatheredRecords({"orders": 0, "x" * 140: 1 << 40}.get)
    taken = gathered.take(data, 1 << 40)
    found = []
    for queue in gathered.finish():
        for part in queue.parts:
            blocks = [[getattr(block, name) for name in _BLOCK_FIELDS] for block in part.blocks]
            found.append((queue.topic, queue.queue_id, part.size_bytes, sorted(part.keys), blocks))
    records = split_records(data)
    return taken, found, records and ([*map(bytes, records)], places_of(data))


_KEY_NAMES: Final = ("KEYS", "UNIQ_KEY", "INNER_NUM", "TAGS")
_BLOCK_FIELDS: Final = (
    "raw", "records", "first_queue_offset", "next_queue_offset", "first_log_offset", "last_log_offset",
    "first_stored_ms", "last_stored_ms",
)  # fmt: skip


def _run_shape(data: bytes) -> object:
    """Headers one behind the other: the first gives the shape by which all are read."""
    starts = [found.start() for found in re.finditer(rb'\{"code":', data)]
    if not starts:
        return None
    ends = [*starts[1:], len(data)]
    try:
        first = decode_json(data[: ends[0]])
        shape = (learn_pull if first.code == 11 else learn_send)(data[: ends[0]], first)
    except ConnectionFailed as error:
        return str(error)
    if shape is None:
        return None
    found = [shape.read(data, *place, place[1]) for place in zip(starts, ends, strict=True)]
    commands = [None if request is None else shape.command(request) for request in found]
    return (
        [request for request in found if not isinstance(request, ShapedPull)],
        commands,
        read_properties(str(data[-40:], "latin-1")),
        checksum_property(int.from_bytes(data[:4], "big")),
    )


def _headers_of_runs(chance: random.Random) -> list[bytes]:
    """Three headers of sends or of pulls that differ where a client's do, and at times elsewhere."""
    made = []
    for _ in range(12):
        written = b""
        for _ in range(3):
            numbers = {name: str(chance.randrange(1 << chance.randrange(1, 40))) for name in _PULL_NUMBERS}
            ext = {"consumerGroup": "g", "topic": "orders", "sysFlag": "5", "maxMsgNums": "32", **numbers}
            if chance.random() < 0.2:
                ext[chance.choice([*ext])] = chance.choice(_ODD_TEXTS)
            written += encode_header(RemotingCommand(11, ext, b"", chance.randrange(1 << chance.randrange(1, 36))))
        made.append(written)
    for _ in range(12):
        written = b""
        for opaque in range(3):
            ext = {**_FIELDS, "e": str(opaque), "i": f"UNIQ_KEY\x01{chance.random()}\x02KEYS\x01{opaque}\x02"}
            if chance.random() < 0.2:
                ext[chance.choice([*_FIELDS])] = chance.choice(_ODD_TEXTS)
            written += encode_header(RemotingCommand(310, ext, b"", chance.randrange(1 << chance.randrange(1, 36))))
        made.append(written)
    return made


_PULL_NUMBERS: Final = ("queueId", "queueOffset", "commitOffset")


def _run_send(data: bytes) -> object:
    return read_plain_send(data)


KINDS: Final[dict[str, tuple[Callable[[random.Random], list[bytes]], Run]]] = {
    "ack": (_acks, _run_ack),
    "amqp": (amqp_frames, run_amqp),
    "connection": (_frames, _run_connection),
    "headers": (_blocks, _run_block),
    "ledger": (_ledger_steps, _run_ledger),
    "mqtt": (mqtt_packets, run_mqtt),
    "record": (_records, _run_record),
    "remoting": (_remoting_frames, _run_remoting),
    "run": (_runs, _run_run),
    "send": (_sends, _run_send),
    "shape": (_headers_of_runs, _run_shape),
    "stretch": (_stretches, _run_stretch),
    "timeouts": (timeouts, run_timeouts),
}
"""What is fed to the hot modules: the inputs that are changed, and what takes one."""


def _outcome(run: Callable[..., object], data: bytes, *others: object) -> str:
    try:
        return repr(run(data, *others))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome
        return f"{type(error).__name__}: {error}"


def outcomes(kind: str, seed: int, block: int) -> list[tuple[bytes, str]]:
    """The inputs of a block and what came of them."""
    prepare, run = KINDS[kind]
    # The inputs that are changed are those of a hundred blocks.
    inputs = prepare(random.Random(f"{kind} {seed} {block // 100}"))
    chance = random.Random(f"{kind} {seed} {block}")
    found = []
    for _ in range(BLOCK_CASES):
        data = change(inputs[int(chance.random() * len(inputs))], inputs, chance)
        found.append((data, _outcome(run, data)))
    return found


def main() -> int:
    """Answer line by line."""
    # Bodies that cannot be unpacked are what is fed here; the words about them would fill the log.
    logging.getLogger("millstream").setLevel(logging.CRITICAL)
    path = look_at_hot_path()
    _say({"compiled": path.compiled, "modules": path.modules})
    for line in sys.stdin:
        kind, seed, block, *wants_all = line.split()
        found = outcomes(kind, int(seed), int(block))
        if wants_all:
            _say([(data.hex(), outcome) for data, outcome in found])
            continue
        digest = blake2b(digest_size=16)
        for _, outcome in found:
            digest.update(outcome.encode("utf-8", "surrogatepass"))
        _say(digest.hexdigest())
    return 0


def _say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
