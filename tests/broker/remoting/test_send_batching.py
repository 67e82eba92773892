"""What arrives in one chunk is taken together; nobody can tell but by the time that it takes.

All of it holds where the connection learns the shapes of its sends as where it does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from chunk_door import ChunkDoor
from hypothesis import example, given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.remoting import broker_handlers
from millstream.broker.remoting.sending import SendBatchHandler
from millstream.model.clock import ManualClock
from millstream.model.errors import StoreError
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.record import decode_record
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import FLAG_ONEWAY, FLAG_RESPONSE, HeaderType, RemotingCommand
from millstream.protocol.remoting.frame import encode_frame
from millstream.store.message_store import StoreOptions

SMALL = StoreOptions(segment_bytes=1 << 20)
ORDINARY = {"a": "g", "b": "plain", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "0"}
TOPICS = (
    TopicConfig("plain"),
    TopicConfig("mixed", MessageType.MIXED),
    TopicConfig("fifo", MessageType.FIFO),
    TopicConfig("compacted", attributes={"cleanup.policy": "COMPACTION"}),
    TopicConfig("batches", attributes={"queue.type": "BatchCQ"}),
)


class Door(ChunkDoor):
    """A broker's connection, into which whole chunks are put. `by_turns` is whether it takes sends together."""

    learns = False

    def __init__(self, broker: Broker, *, by_turns: bool) -> None:
        handlers = broker_handlers(broker)
        turns = handlers[RequestCode.SEND_MESSAGE_V2]
        assert isinstance(turns, SendBatchHandler)
        if not by_turns:
            handlers[RequestCode.SEND_MESSAGE_V2] = turns.__call__
        self.taken = self.taken_as_run = 0
        take, take_run = turns.take, turns.take_run

        def counted(*arguments: Any) -> Any:
            turn = take(*arguments)
            self.taken += 0 if turn is None else turn.count
            return turn

        def run_counted(*arguments: Any) -> Any:
            turn = take_run(*arguments)
            self.taken += 0 if turn is None else turn.count
            self.taken_as_run += 0 if turn is None else turn.count
            return turn

        turns.take = counted  # type: ignore[assignment, method-assign]
        turns.take_run = run_counted  # type: ignore[assignment, method-assign]
        super().__init__(broker, handlers, learns=Door.learns)


@pytest.fixture(scope="module", autouse=True, params=[False, True], ids=["plain", "shapes"])
def learns(request: pytest.FixtureRequest) -> Iterator[None]:
    Door.learns = request.param
    yield
    Door.learns = False


@asynccontextmanager
async def door(directory: Path, *, by_turns: bool = True, store: StoreOptions = SMALL) -> AsyncIterator[Door]:
    broker = Broker(directory, options=BrokerOptions(store=store), clock=ManualClock())
    await broker.start()
    try:
        for topic in TOPICS:
            broker.topics.create(topic)
        yield Door(broker, by_turns=by_turns)
    finally:
        await broker.close()


def sends(count: int, **fields: str) -> list[RemotingCommand]:
    return [
        RemotingCommand(RequestCode.SEND_MESSAGE_V2, {**ORDINARY, **fields}, b"body %d" % number, opaque=number)
        for number in range(1, count + 1)
    ]


def log_of(broker: Broker) -> bytes:
    end = broker.maintenance.store.written_log_offset
    return bytes(broker.maintenance.store.raw(0, end) or b"")


def queues_of(broker: Broker) -> dict[tuple[str, int], list[Any]]:
    """What stands in each queue, but for the place in the log."""
    found: dict[tuple[str, int], list[Any]] = {}
    for topic in broker.maintenance.store.topics:
        for queue_id in range(8):
            for entry in broker.maintenance.store.entries(topic, queue_id, 0, 1000):
                message = decode_record(broker.maintenance.store.read(entry))
                properties = {k: v for k, v in message.properties.items() if k != "__CRC32#"}
                place = (message.queue_offset, message.body, properties, entry.tags_code, message.born_timestamp_ms)
                more = (message.born_host, message.flag, int(message.system_flag), message.reconsume_times)
                found.setdefault((topic, queue_id), []).append(place + more)
    return found


def counted(broker: Broker) -> dict[Any, Any]:
    return {
        key: (one.messages, one.size_bytes, one.sizes.counts)
        for key, one in broker.maintenance.statistics.incoming.items()
    }


def told(answers: dict[int, RemotingCommand]) -> dict[int, Any]:
    """The answers without the places in the log."""
    return {
        opaque: (answer.code, answer.remark, [(k, v) for k, v in answer.ext.items() if k != "msgId"], answer.flag)
        for opaque, answer in answers.items()
    }


async def test_ordinary_sends_are_taken_together_and_leave_the_same_bytes_as_one_by_one(tmp_path: Path) -> None:
    properties = 'UNIQ_KEY\x01AC"1\\100\x02TAGS\x01red\x02KEYS\x01a b\x02colour\x01blue'
    commands = [*sends(40, i=properties), *sends(80)[40:]]
    async with door(tmp_path / "a") as together, door(tmp_path / "b", by_turns=False) as apart:
        assert await together.put(commands) == await apart.put(commands)
        assert bytes(together.wire.written) == bytes(apart.wire.written)
        assert log_of(together.broker) == log_of(apart.broker) != b""
        assert (together.taken, apart.taken) == (80, 0)


async def test_sends_that_are_alike_are_taken_as_a_run_of_a_shape(tmp_path: Path) -> None:
    commands = sends(20, i="UNIQ_KEY\x01A1\x02TAGS\x01red\x02")
    commands[12].ext["e"] = "99"
    async with door(tmp_path / "a") as together, door(tmp_path / "b", by_turns=False) as apart:
        assert told(await together.put(commands)) == told(await apart.put(commands))
        assert queues_of(together.broker) == queues_of(apart.broker)
        # The first one gives the shape; what is behind the refused one must not overtake it.
        assert (together.taken, together.taken_as_run) == (12, 11 if Door.learns else 0)


async def test_every_answer_of_a_turn_is_counted(tmp_path: Path) -> None:
    async with door(tmp_path) as together:
        await together.put(sends(7))
        assert sum(together.server.latency[RequestCode.SEND_MESSAGE_V2, ResponseCode.SUCCESS].counts) == 7
        assert together.broker.maintenance.statistics.incoming["plain", "NORMAL"].messages == 7


def _both(fields: tuple[dict[str, str], dict[str, str]]) -> dict[str, str]:
    return fields[0] | fields[1]


TEXTS = st.sampled_from(
    """
    |TAGS=red;|TAGS=;|TAGS=a/b;|KEYS= ;|DELAY=3;|TRAN_MSG=true;|UNIQ_KEY=id1;WAIT=true;|UNIQ_KEY=;|a=b|a=b;a=c;|=b;
    |no mark|a=b=c;|a=\u00e4;|a=\t;|__SHARDINGKEY=g;|INNER_NUM=5;|__TIMER_OF=1;|REPLY_TO_CLIENT=c;|_SYS_MSG_PRIORITY_=1;
    |a=LONG;|__LITE_TOPIC=l;|a=b;;c=d;|;|__CRC32#=0123456789;|TAGS=red;TAGS=blue;
    """.strip()
    .replace("\n", "")
    .replace("    |", "|")
    .replace("=", "\x01")
    .replace(";", "\x02")
    .replace("LONG", "x" * 17_000)
    .split("|")
).map(lambda text: text.replace("/", "|"))
NAMES = ("plain", "plain", "plain", "mixed", "fifo", "compacted", "batches", "gone", "", "%RETRY%g")
VALUES = {
    "b": st.sampled_from(NAMES),
    "e": st.sampled_from(("0", "3", "4", "-1", "x", " 1", "01", "", "\u0661", "9" * 5000)),
    "f": st.sampled_from(("0", "1", "4", "8", "64", "128", "-1", "", "x")),
    "g": st.sampled_from(("0", "-1", "", "x", "1_0", "9" * 18, "9" * 19, "9" * 30, "\u0661")),
    "h": st.sampled_from(("0", "7", "-7", "", "x", "99999999999")),
    "i": TEXTS,
    "j": st.sampled_from(("0", "2", "", "x")),
    "m": st.sampled_from(("false", "true", "", "x")),
    "bornHost": st.sampled_from(("10.0.0.1:5", "nowhere", "host:1")),
    "messageType": st.sampled_from(("NORMAL", "DELAY", "x")),
}


def _named(name: str) -> st.SearchStrategy[dict[str, str]]:
    return VALUES[name].map(lambda value: {name: value})


ONE_FIELD = st.sampled_from(sorted(VALUES)).flatmap(_named)
NO_FIELD: st.SearchStrategy[dict[str, str]] = st.just({})
FIELDS = st.one_of(NO_FIELD, ONE_FIELD, _named("i"), st.tuples(ONE_FIELD, ONE_FIELD).map(_both))
COMMANDS = st.lists(
    st.tuples(
        FIELDS,
        st.sampled_from((b"body",) * 9 + (b"",)),
        st.sampled_from((0,) * 9 + (FLAG_ONEWAY, FLAG_RESPONSE)),
        st.sampled_from((HeaderType.JSON,) * 9 + (HeaderType.BINARY,)),
        st.sampled_from((RequestCode.SEND_MESSAGE_V2,) * 9 + (RequestCode.SEND_BATCH_MESSAGE, 7777)),
    ),
    min_size=1,
    max_size=12,
)


def _of_queue(number: str) -> tuple[Any, ...]:
    return {"e": number}, b"body", 0, HeaderType.JSON, RequestCode.SEND_MESSAGE_V2


@settings(max_examples=scaled(40), deadline=None)
@given(st.lists(COMMANDS, min_size=1, max_size=3))
@example([[*[_of_queue("0")] * 5, _of_queue("-1")]])
@example([[*[_of_queue("1")] * 9, ({}, b"", *_of_queue("1")[2:]), _of_queue("-1"), _of_queue("1")]])
def test_whatever_arrives_is_stored_and_answered_as_if_it_came_one_by_one(chunks: list[list[Any]]) -> None:
    async def both() -> None:
        with TemporaryDirectory() as directory:
            ways = Path(directory)
            async with door(ways / "a") as together, door(ways / "b", by_turns=False) as apart:
                opaque = 0
                for chunk in chunks:
                    commands = []
                    for fields, body, flag, header_type, code in chunk:
                        opaque += 1
                        ext = {**ORDINARY, **fields}
                        commands.append(RemotingCommand(code, ext, body, opaque, flag, header_type=header_type))
                    assert told(await together.put(commands)) == told(await apart.put(commands))
                assert queues_of(together.broker) == queues_of(apart.broker)
                assert counted(together.broker) == counted(apart.broker)
                assert log_of(together.broker).count(b"body") == log_of(apart.broker).count(b"body")

    asyncio.run(both())


async def test_a_send_that_needs_a_closer_look_is_not_overtaken_by_those_behind_it(tmp_path: Path) -> None:
    commands = sends(6)
    commands[2].ext["h"] = "7"
    async with door(tmp_path) as together:
        await together.put(sends(5, b="mixed"))
        assert together.taken == 5
        together.taken = 0
        await together.put(commands)
        assert together.taken == 2
        messages = [one[1] for one in queues_of(together.broker)["plain", 1]]
        assert messages == [command.body for command in commands]
        await together.put(commands[:2])
        assert together.taken == 4


def _drain(broker: Broker) -> None:
    broker.maintenance.permission.value = broker.maintenance.permission.value.__class__(4)


def _make_read_only(broker: Broker) -> None:
    topic = broker.topics.get("plain")
    broker.topics.update(TopicConfig("plain", permission=topic.permission.__class__(4)))


@pytest.mark.parametrize("forbid", [_drain, _make_read_only])
async def test_what_forbids_writing_forbids_it_from_the_next_send_on(
    tmp_path: Path, forbid: Callable[[Broker], None]
) -> None:
    async with door(tmp_path) as together:
        assert {answer.code for answer in (await together.put(sends(3))).values()} == {0}
        forbid(together.broker)
        assert {answer.code for answer in (await together.put(sends(3))).values()} == {16}
        assert together.taken == 3


async def test_a_turn_that_the_store_refuses_as_a_whole_is_judged_one_by_one(tmp_path: Path) -> None:
    commands = sends(3)
    commands[1].body = b"x" * 3000
    async with door(tmp_path, store=StoreOptions(segment_bytes=1 << 11)) as together:
        answers = await together.put(commands)
        assert [answers[number].code for number in (1, 2, 3)] == [0, ResponseCode.MESSAGE_ILLEGAL, 0]
        assert [one[1] for one in queues_of(together.broker)["plain", 1]] == [b"body 1", b"body 3"]


async def test_a_store_that_fails_is_the_answer_to_all_of_a_turn(tmp_path: Path) -> None:
    async with door(tmp_path) as together:

        def fail(_: object) -> None:
            raise StoreError("STORE_FAILED", "The disk is gone.")

        together.broker.maintenance.store.put = fail  # type: ignore[assignment, method-assign]
        answers = await together.put(sends(3))
        assert together.taken == 3
        assert ["The disk is gone." in str(answers[number].remark) for number in (1, 2, 3)] == [True] * 3


async def test_a_turn_is_answered_only_after_the_flush_that_was_promised(tmp_path: Path) -> None:
    async with door(tmp_path, store=StoreOptions(segment_bytes=1 << 20, sync_flush=True)) as together:
        answers = await together.put(sends(5))
        assert {answer.code for answer in answers.values()} == {0}
        assert together.taken == 5
        assert (
            together.broker.maintenance.store.flushed_log_offset == together.broker.maintenance.store.written_log_offset
        )


async def test_a_connection_that_goes_away_keeps_nothing_waiting(tmp_path: Path) -> None:
    async with door(tmp_path) as together:
        data = b"".join(b"".join(encode_frame(command)) for command in sends(5))
        together.connection.get_buffer(-1)[: len(data)] = data
        together.connection.buffer_updated(len(data))
        together.connection.connection_lost(None)
        for _ in range(5):
            await asyncio.sleep(0)
        assert together.connection.waiting == ()
        assert len(queues_of(together.broker)["plain", 1]) == 5
        assert not together.wire.written
