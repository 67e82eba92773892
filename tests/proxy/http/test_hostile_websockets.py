"""Clients of WebSockets and of event streams that end, cut or flood what they say, beside a good one."""

from __future__ import annotations

import asyncio
import gc
import json
import socket

import pytest
from http_ground import HttpGround

from millstream.model.operations import PoppedMessage
from millstream.proxy.http.topic_tail import MAX_TAIL_BYTES
from millstream.proxy.http.websocket_session import WebSocketSession
from millstream.transport.connection_memory import ANSWER_BUDGET_BYTES, UnreadAnswer
from patience import eventually, within_patience
from websocket_peer import Closed, WebSocketPeer, client_frame, handshake

PATH = "/v1/groups/g/topics/orders/websocket"
STREAM = b"GET /v1/topics/orders/stream HTTP/1.1\r\nhost: x\r\n\r\n"
ACK = client_frame(json.dumps({"action": "ack", "handles": ["never one"]}).encode())


async def raw_connection(ground: HttpGround) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", ground.port, limit=1 << 21)


async def nothing_is_left(ground: HttpGround) -> None:
    """The port has none of the clients, and nothing that was kept for them; the one of the test itself may be there."""
    server = ground.server
    await eventually(lambda: server.connections <= 1 and not server._traffic.sessions)
    await eventually(lambda: not server._streams.tails.size_bytes)
    assert (await ground.client.get("/health")).status_code == 200


async def test_a_websocket_that_is_cut_at_any_byte_leaves_nothing(memory: HttpGround) -> None:
    said = handshake(PATH) + client_frame(b'{"action": "ack",', final=False) + client_frame(b"p", 9) + ACK
    writers = []
    for place in range(len(said)):
        _, writer = await raw_connection(memory)
        writer.write(said[:place])
        writers.append(writer)
    await asyncio.sleep(0)
    for number, writer in enumerate(writers):
        if number % 2:
            writer.transport.abort()
        else:
            writer.close()
    await nothing_is_left(memory)


async def test_commands_that_come_in_pieces_of_one_byte_are_obeyed(memory: HttpGround) -> None:
    peer = await WebSocketPeer.open(memory.port, PATH)
    for place in range(len(ACK)):
        peer.writer.write(ACK[place : place + 1])
        await asyncio.sleep(0)
    assert (await peer.receive())["action"] == "ack"
    await peer.close()


async def test_thousands_of_commands_of_one_client_do_not_make_others_wait_for_all_of_them(
    memory: HttpGround,
) -> None:
    peer = await WebSocketPeer.open(memory.port, PATH)
    await memory.client.get("/health")
    count = 3000
    peer.writer.write(ACK * count)
    await memory.client.get("/health")
    assert count_commands(memory) < count // 2
    for _ in range(count):
        await peer.receive()
    await peer.close()


def count_commands(ground: HttpGround) -> int:
    """Commands that were obeyed so far."""
    return sum(sum(histogram.counts) for key, histogram in ground.server._latency.rows() if key and key[0] == "ack")


async def test_a_flood_of_pings_and_of_empty_pieces_is_answered_and_ends_nothing(memory: HttpGround) -> None:
    peer = await WebSocketPeer.open(memory.port, PATH)
    peer.writer.write(client_frame(b"", 9) * 10_000)
    peer.writer.write(client_frame(b"", final=False) + client_frame(b"", 0, final=False) * 10_000)
    peer.writer.write(client_frame(b'{"action": "ack", "handles": ["x"]}', 0))
    assert (await peer.receive())["action"] == "ack"
    await peer.close()


async def test_pieces_without_an_end_are_cut_off_at_the_limit_of_a_message(memory: HttpGround) -> None:
    peer = await WebSocketPeer.open(memory.port, PATH)
    peer.writer.write(client_frame(b"x" * 1000, final=False) + client_frame(b"x" * 1000, 0, final=False) * 300)
    with pytest.raises(Closed) as end:
        await peer.receive()
    assert end.value.code == 1009
    peer.drop()
    await nothing_is_left(memory)


async def test_an_event_stream_whose_request_is_cut_at_any_byte_leaves_nothing(ground: HttpGround) -> None:
    for place in range(0, len(STREAM) + 1):
        _, writer = await raw_connection(ground)
        writer.write(STREAM[:place])
        await asyncio.sleep(0)
        if place % 2:
            writer.transport.abort()
        else:
            writer.close()
    await nothing_is_left(ground)


async def test_streams_that_read_nothing_hold_no_more_than_the_window_and_nobody_else_up(ground: HttpGround) -> None:
    unread = [await raw_connection(ground) for _ in range(20)]
    for _, writer in unread:
        writer.transport.pause_reading()
        writer.write(STREAM)
    await eventually(lambda: ground.server._streams.streams == len(unread))
    reader, writer = await raw_connection(ground)
    writer.write(STREAM)
    await within_patience(reader.readuntil(b": still here\n\n"))
    for number in range(40):
        await ground.post(b"%d " % number + b"x" * 500_000)
        await within_patience(reader.readuntil(b"\n\n"))
    assert ground.server._streams.tails.size_bytes < MAX_TAIL_BYTES + 2_000_000
    writer.close()
    for _, one in unread:
        one.transport.abort()
    await nothing_is_left(ground)


RECEIVE = b"POST /v1/groups/g/topics/orders/receive?max=32&wait=20s HTTP/1.1\r\nhost: x\r\n\r\n"


def has_full_buffer(ground: HttpGround) -> bool:
    return any(one.unread.since_s is not None for one in ground.server._port._connections)


def whole_answers() -> list[bytes]:
    """Answers with the test's messages that are there in one piece: what a buffer has is none."""
    held = (one for holder in gc.get_objects() for one in gc.get_referents(holder))
    large = [one for one in held if isinstance(one, bytes) and len(one) > 300_000]
    # As base64 says "xxxxxx".
    return [one for one in large if one.startswith(b'{"messages"') and b"eHh4eHh4" in one[:4096]]


@pytest.mark.parametrize("request_line", [handshake(PATH), RECEIVE], ids=["websocket", "receive"])
async def test_messages_that_lie_in_a_full_buffer_are_not_kept_beside_it(
    ground: HttpGround, request_line: bytes
) -> None:
    with socket.socket() as peer:
        for _ in range(20):
            await ground.post(b"x" * 400_000)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.setblocking(False)
        await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", ground.port))
        await asyncio.get_running_loop().sock_sendall(peer, request_line)
        await eventually(lambda: ground.processor.answers.used_bytes)
        await eventually(lambda: has_full_buffer(ground))
        # The thread that made the answer may still be about to forget it.
        await eventually(lambda: not [one for one in gc.get_objects() if isinstance(one, PoppedMessage)])
        await eventually(lambda: not whole_answers())
        assert has_full_buffer(ground)
    await nothing_is_left(ground)


@pytest.mark.parametrize("is_much", [False, True])
async def test_while_clients_leave_much_unread_messages_come_one_at_a_time(memory: HttpGround, is_much: bool) -> None:
    for number in range(8):
        await memory.post(str(number))
    answers = memory.server._port.memory.answers
    unread = UnreadAnswer(lambda: ANSWER_BUDGET_BYTES, lambda: None, lambda _error: None)
    answers.note_unread(unread, ANSWER_BUDGET_BYTES // 2 + is_much, 0.0)
    peer = await WebSocketPeer.open(memory.port, PATH)
    counts = []
    while sum(counts) < 8:
        counts.append(len((await peer.receive())["messages"]))
    assert (max(counts) == 1) is is_much
    answers.end(unread)
    await peer.close()
    await nothing_is_left(memory)


async def test_a_websocket_that_ends_while_it_waits_for_messages_leaves_no_circles_of_objects(
    ground: HttpGround,
) -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            _, writer = await raw_connection(ground)
            writer.write(handshake(PATH) + client_frame(b"x" * 1000, final=False))
            await eventually(lambda: ground.processor._waiting)
            writer.transport.abort()
            await eventually(lambda: not ground.processor._waiting)
        await nothing_is_left(ground)
        await eventually(lambda: not [one for one in gc.get_objects() if isinstance(one, WebSocketSession)])
    finally:
        gc.enable()
