"""X4, malformed frames: random and mutated remoting requests to the broker's and the nameserver's port, and peers that
make them hold memory."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
from contextlib import suppress
from typing import Final

from crash.attack import InputKind, watch_growth
from crash.attacked_server import AttackedServer
from crash.hoarding_peers import hoard_memory
from crash.malformed_input import mutated
from crash.programme import ProgrammeRun
from crash.strangers import meet_strangers
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import FLAG_ONEWAY, FLAG_RESPONSE, HeaderType, RemotingCommand
from millstream.protocol.remoting.frame import FrameDecoder, encode_frame
from millstream.protocol.remoting.messages.batch import encode_batch_item

__all__ = ["send_malformed_frames"]

ANSWER_TIMEOUT_S = 30.0
REQUESTS_PER_CONNECTION = 50

_SENTINEL: Final = 0x5E17
"""The opaque of the request after all others: an ordinary one, which must be answered."""

_FIELDS: Final = (
    "topic", "queueId", "queueOffset", "consumerGroup", "group", "groupName", "producerGroup", "maxMsgNums", "sysFlag",
    "commitOffset", "suspendTimeoutMillis", "subscription", "subVersion", "expressionType", "offset", "timestamp",
    "key", "maxNum", "beginTimestamp", "endTimestamp", "delayLevel", "originTopic", "maxReconsumeTimes", "extraInfo",
    "invisibleTime", "pollTime", "bornTime", "initMode", "expType", "exp", "order", "attemptId", "clientID", "clientId",
    "commitOrRollback", "tranStateTableOffset", "commitLogOffset", "transactionId", "msgId", "recallHandle",
    "brokerName", "brokerAddr", "clusterName", "brokerId", "haServerAddr", "compressed", "bodyCrc32", "namespace",
    "value", "readQueueNums", "writeQueueNums", "perm", "attributes", "lo", "isForce", "statsName", "statsKey",
    "index", "count", "properties", "bornTimestamp", "flag", "reconsumeTimes", "batch", "a", "b", "c", "d", "e", "f",
    "g", "h", "i", "j", "k", "l", "m", "n", "bname", "ns", "_UNIQUE_KEY_QUERY", "boundaryType",
)  # fmt: skip
_WORDS: Final = (
    "", "orders", "ordered", "missing", "g", "no good", "%DLQ%g", "%RETRY%g", "x" * 300, "\x00", "naïve", "*", "a||b",
    "a > 1 AND b IS NULL", "SQL92", "TAG", "TAGS\x01a\x02TRAN_MSG\x01true\x02", "DELAY\x011\x02", "true", "false",
    "0 1700000000000 30000 0 0 nobody 0 0 0", "0 0 1;0 1 2", "djEgeA==", "+message.type=FIFO,-a", "127.0.0.1:1",
    "TBW102",
)  # fmt: skip
_NUMBERS: Final = (0, 1, -1, 2, 3, 10, 32, 1000, 0x7FFFFFFF, -0x80000000, 0x7FFFFFFFFFFFFFFF, -0x8000000000000000)
_QUEUES: Final = [{"topic": "orders", "brokerName": "broker-a", "queueId": 0}]
_PLAUSIBLE: Final = {
    "topic": "orders", "b": "orders", "queueId": "0", "e": "0", "consumerGroup": "g", "group": "g", "groupName": "g",
    "producerGroup": "g", "a": "g", "queueOffset": "0", "offset": "0", "maxMsgNums": "32", "sysFlag": "4", "f": "0",
    "g": "1700000000000", "h": "0", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
    "subVersion": "0",
    "timestamp": "0", "key": "k", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "4000000000000",
    "delayLevel": "1", "invisibleTime": "10000", "pollTime": "0", "bornTime": "0", "initMode": "0", "order": "false",
    "extraInfo": "0 1700000000000 30000 0 0 broker-a 0 0", "tranStateTableOffset": "0", "commitLogOffset": "0",
    "commitOrRollback": "8", "msgId": "m", "clientID": "x", "clientId": "x", "clusterName": "c", "brokerName": "nobody",
    "brokerAddr": "127.0.0.1:1", "brokerId": "0", "haServerAddr": "", "namespace": "n", "value": "v",
}  # fmt: skip
"""What makes most requests good ones, before some of it is spoilt."""

_OBJECTS: Final = (
    {
        "clientID": "x",
        "producerDataSet": [{"groupName": "g"}],
        "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "orders", "subString": "*"}]}],
    },
    {"consumerGroup": "g", "clientId": "x", "mqSet": _QUEUES},
    {"topic": "orders", "consumerGroup": "g", "clientId": "x", "strategyName": "AVG", "messageModel": "CLUSTERING"},
    {"topicConfigSerializeWrapper": {"topicConfigTable": {"orders": {"topicName": "orders"}}}},
    {"topicConfigList": [{"topicName": "orders"}]},
    {"groupName": "g", "groupRetryPolicy": {"type": "EXPONENTIAL"}},
    {"brokerName": "broker-a", "acks": [{"c": "g", "t": "orders", "so": 0, "q": 0, "pt": 1, "it": 1, "b": "AQ=="}]},
    {"username": "u", "password": "p"},
    [1, [2, [3, {}]]],
)
_BODIES: Final = (
    *(json.dumps(body).encode() for body in _OBJECTS),
    encode_batch_item(b"body", {"TAGS": "a"}) * 3,
    b"brokerPermission=6\nmaxMessageSize=1\n",
    b"{{1:2}:{3:4}}",
    b"[" * 5000,
    b"",
)
_DELETIONS: Final = (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.CLEAN_UNUSED_TOPIC)
"""Left out: without the topic nothing of the others gets far."""

_CODES: Final = tuple(int(code) for code in RequestCode if code not in _DELETIONS)


_WAITING: Final = frozenset(
    (
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.SEGMENT_POP,
        RequestCode.NOTIFICATION,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
    )
)
"""What may wait for messages or for another client as long as the request says; all others are to be answered."""


def send_malformed_frames(run: ProgrammeRun) -> None:
    """X4. 8,000 inputs (CI), 200,000 (full), 5 million (soak); then strangers against access control."""
    asyncio.run(_run(run))
    hoard_memory(run)
    meet_strangers(run)


async def _run(run: ProgrammeRun) -> None:
    inputs = run.by_size(8_000, 200_000, 5_000_000)
    with AttackedServer(run) as server:
        await watch_growth(
            run, server, _Attack(run, (server.broker, server.nameserver)).kinds, inputs, first_inputs=inputs // 4
        )


class _Attack:
    """The kinds of inputs, each as often as it is to be sent."""

    def __init__(self, run: ProgrammeRun, addresses: tuple[str, str]) -> None:
        self._run = run
        self._addresses = addresses
        self.kinds: list[InputKind] = [
            self._requests, self._requests, self._mutated_frames, self._lying_lengths, self._garbage
        ]  # fmt: skip

    async def _requests(self, rng: random.Random) -> None:
        """Whole frames of senseless requests: the connection serves an ordinary one behind them."""
        reader, writer = await self._open(rng)
        owed = {_SENTINEL: "an ordinary request"}
        for number in range(REQUESTS_PER_CONNECTION):
            request = _request(rng, number)
            if request.flag == 0 and request.code not in _WAITING:
                owed[number] = f"a request {request.code}"
            _write(writer, _frame(request))
            self._run.count("inputs")
        _write(writer, _frame(RemotingCommand(RequestCode.GET_ROUTE_BY_TOPIC, {"topic": "orders"}, opaque=_SENTINEL)))
        end = await _settled(reader, owed, self._run)
        if owed:
            self._run.fail(f"{end}, and no answer had {', '.join(sorted(set(owed.values())))[:500]}")
        await _close(writer, reset=rng.random() < 0.5)

    async def _mutated_frames(self, rng: random.Random) -> None:
        """Frames with bytes flipped, inserted and cut out: answered or closed, as it comes."""
        _, writer = await self._open(rng)
        for number in range(rng.randrange(1, REQUESTS_PER_CONNECTION)):
            _write(writer, mutated(rng, _frame(_request(rng, number))))
            self._run.count("inputs")
        await asyncio.sleep(rng.random() * 0.02)
        await _close(writer, reset=rng.random() < 0.7)

    async def _lying_lengths(self, rng: random.Random) -> None:
        """Lengths of frames and headers that are too large, too small or negative."""
        _, writer = await self._open(rng)
        for _ in range(rng.randrange(1, 10)):
            total = rng.choice([0, 4, 5, 100, 1 << 20, 16 << 20, (16 << 20) + 1, 0x7FFFFFFF, -1, -0x80000000])
            header = rng.choice([0, 10, 200, 64 << 10, (64 << 10) + 1, (1 << 24) - 1])
            kind = rng.choice([0, 1, 2, 255])
            _write(writer, struct.pack(">iI", total, kind << 24 | header) + rng.randbytes(rng.randrange(300)))
            self._run.count("inputs")
        await asyncio.sleep(rng.random() * 0.02)
        await _close(writer, reset=rng.random() < 0.5)

    async def _garbage(self, rng: random.Random) -> None:
        """No remoting at all."""
        _, writer = await self._open(rng)
        words = rng.choice([
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(64),
            rng.randbytes(rng.randrange(1, 5000)),
        ])  # fmt: skip
        writer.write(words)
        self._run.count("inputs")
        await asyncio.sleep(rng.random() * 0.02)
        await _close(writer, reset=rng.random() < 0.5)

    async def _open(self, rng: random.Random) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = rng.choice(self._addresses).rpartition(":")
        return await asyncio.open_connection(host, int(port))


async def _settled(reader: asyncio.StreamReader, owed: dict[int, str], run: ProgrammeRun) -> str:
    """Reads until each of the owed answers came, or no more will; takes out those that came. How it ended."""
    decoder = FrameDecoder(max_header_bytes=1 << 24)
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while owed:
                data = await reader.read(1 << 16)
                if not data:
                    return "the connection was closed"
                for answer in decoder.feed(data):
                    run.count("answered")
                    owed.pop(answer.opaque, None)
    except TimeoutError:
        return f"nothing more came for {ANSWER_TIMEOUT_S:g} s"
    except ConnectionError:
        return "the connection was reset"
    return "all came"


def _write(writer: asyncio.StreamWriter, raw: bytes) -> None:
    """Nothing if the connection is gone."""
    if not writer.is_closing():
        writer.write(raw)


async def _close(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    if reset:
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


def _request(rng: random.Random, opaque: int) -> RemotingCommand:
    code = rng.choice(_CODES) if rng.random() < 0.95 else rng.choice([-1, 0, 9999, 0x7FFF])
    ext = {} if rng.random() < 0.3 else dict(_PLAUSIBLE)
    ext |= {name: _value(rng) for name in rng.sample(_FIELDS, rng.choice([0, 1, 2, 5, len(_FIELDS)]))}
    body = rng.choice(_BODIES)
    if rng.random() < 0.5:
        body = mutated(rng, body)
    flag = rng.choice([0, 0, 0, 0, FLAG_ONEWAY, FLAG_RESPONSE, 0x7FFFFFFF])
    kind = HeaderType.BINARY if rng.random() < 0.3 and code <= 0x7FFF else HeaderType.JSON
    return RemotingCommand(code, ext, body, opaque, flag, language="JAVA", header_type=kind)


def _value(rng: random.Random) -> str:
    return rng.choice(_WORDS) if rng.random() < 0.5 else str(rng.choice(_NUMBERS))


def _frame(command: RemotingCommand) -> bytes:
    return b"".join(encode_frame(command))
