"""Pulls that are alike are answered together with the bytes that each would have got by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
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
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.reading import PullHandler
from millstream.model.clock import ManualClock
from millstream.model.errors import StoreError
from millstream.model.group import GroupConfig
from millstream.model.message import OutgoingMessage
from millstream.model.operations import QueuePoint, ResetRequest
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import FLAG_ONEWAY, HeaderType, RemotingCommand
from millstream.store.message_store import MessageStore, StoreOptions
from millstream.transport.request_batches import RunAnswers

SMALL = StoreOptions(segment_bytes=1 << 20)
ORDINARY = {
    "consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "3", "maxMsgNums": "4", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
}  # fmt: skip
TOPICS = (
    TopicConfig("t", read_queues=2, write_queues=2),
    TopicConfig("batches", attributes={"queue.type": "BatchCQ"}),
    TopicConfig("closed", permission=TopicConfig("x").permission.__class__(2)),
)


class Door(ChunkDoor):
    """`together` counts the pulls that were answered as parts of a run."""

    def __init__(self, broker: Broker, *, learns: bool) -> None:
        handlers = broker_handlers(broker)
        handler = handlers[RequestCode.PULL_MESSAGE]
        assert isinstance(handler, PullHandler)
        self.together = 0
        self.consumers: ConsumerRegistry = handler._consumers
        open_run = handler.open_run

        def counted(shape: Any) -> RunAnswers | None:
            answers = open_run(shape)
            return None if answers is None else _Counted(answers, self)

        handler.open_run = counted  # type: ignore[method-assign]
        super().__init__(broker, handlers, learns=learns)


class _Counted:
    def __init__(self, answers: RunAnswers, door: Door) -> None:
        self.answers, self.door = answers, door

    def answer(self, requests: list[Any], start: int, frames: list[Any], max_bytes: int) -> int:
        count = self.answers.answer(requests, start, frames, max_bytes)
        self.door.together += count
        return count


@asynccontextmanager
async def doors(directory: Path) -> AsyncIterator[tuple[Door, Door]]:
    """Two connections of equal brokers, of which the first learns shapes."""
    made = []
    for name, learns in (("a", True), ("b", False)):
        broker = Broker(directory / name, options=BrokerOptions(store=SMALL), clock=ManualClock())
        await broker.start()
        for topic in TOPICS:
            broker.topics.create(topic)
        broker.groups.create(GroupConfig("g"))
        broker.groups.create(GroupConfig("off", enabled=False))
        for number in range(12):
            tag = {"TAGS": "red" if number % 2 else "blue"}
            await broker.delivery.send([OutgoingMessage("t", b"body %d" % number, tag, queue_id=0)])
        made.append(Door(broker, learns=learns))
    try:
        yield made[0], made[1]
    finally:
        for door in made:
            await door.broker.close()


def pulls(*changed: dict[str, str], **of_all: str) -> list[RemotingCommand]:
    return [
        RemotingCommand(RequestCode.PULL_MESSAGE, {**ORDINARY, **of_all, **fields}, opaque=number)
        for number, fields in enumerate(changed, start=70)
    ]


def pulled(broker: Broker) -> dict[Any, Any]:
    return {key: (one.messages, one.size_bytes) for key, one in broker.maintenance.statistics.outgoing.items()}


def committed(broker: Broker) -> list[int | None]:
    return [broker._offsets.committed_offset("g", "t", queue_id) for queue_id in (0, 1)]


async def test_pulls_that_are_alike_are_answered_together_with_the_same_bytes(tmp_path: Path) -> None:
    commands = pulls(*({"queueOffset": str(number)} for number in range(12)))
    async with doors(tmp_path) as (together, apart):
        await together.put(commands)
        await apart.put(commands)
        assert bytes(together.wire.written) == bytes(apart.wire.written) != b""
        # The first one gives the shape.
        assert (together.together, apart.together) == (11, 0)
        assert pulled(together.broker) == pulled(apart.broker)
        assert sum(together.server.latency[RequestCode.PULL_MESSAGE, 0].counts) == 12


async def test_the_offset_that_pulls_bring_is_kept(tmp_path: Path) -> None:
    commands = pulls(*({"commitOffset": str(number)} for number in (2, 4, 99, 7)), sysFlag="5")
    async with doors(tmp_path) as (together, apart):
        assert await together.put(commands) == await apart.put(commands)
        assert committed(together.broker) == committed(apart.broker) == [7, None]
        assert together.together == 3


async def test_a_pull_behind_the_end_waits_while_those_around_it_are_answered(tmp_path: Path) -> None:
    commands = pulls(
        {}, {}, {"queueOffset": "12"}, {"queueOffset": "99"}, {"queueId": "1"}, {"queueId": "2"}, {},
        sysFlag="6", suspendTimeoutMillis="20",
    )  # fmt: skip
    async with doors(tmp_path) as (together, apart):
        waiting = asyncio.create_task(together.put(commands))
        await asyncio.sleep(0)
        assert await waiting == await apart.put(commands)
        assert together.together == 2


async def test_a_group_that_was_reset_hears_of_it_once(tmp_path: Path) -> None:
    async with doors(tmp_path) as both:
        answers = []
        for door in both:
            await door.put(pulls({}, {}))
            later = door.broker.queues.commit("g", "t", 0, 3)
            assert later is None
            reset = door.broker.queues.reset(ResetRequest("g", "t", QueuePoint.OFFSET, 9, 0))
            assert isinstance(reset, list)
            answers.append(await door.put(pulls({}, {}, {})))
        assert answers[0] == answers[1]
        assert {one.ext["nextBeginOffset"] for one in answers[0].values()} == {"9", "7"}


async def test_a_group_that_is_switched_off_is_refused_from_the_next_pull_on(tmp_path: Path) -> None:
    async with doors(tmp_path) as (together, _):
        await together.put(pulls({}, {}))
        assert together.together == 1
        together.broker.groups.update(GroupConfig("g", enabled=False))
        answers = await together.put(pulls({}, {}))
        assert [answer.code == 0 for answer in answers.values()] == [False, False]
        assert together.together == 1


async def test_large_answers_are_made_only_as_the_peer_reads(tmp_path: Path) -> None:
    async with doors(tmp_path) as (together, _):
        for _ in range(20):
            await together.broker.delivery.send([OutgoingMessage("t", b"x" * 50_000, {}, queue_id=1)])
        commands = pulls(*[{"queueOffset": str(number % 20)} for number in range(60)], queueId="1", maxMsgNums="1")
        most = 0
        send = together.wire.write

        def note(data: Any) -> None:
            nonlocal most
            most = max(most, together.connection._outgoing_bytes + len(data))
            send(data)

        together.wire.write = note  # type: ignore[method-assign]
        assert len(await together.put(commands)) == 60
        assert together.together == 59
        assert most < 1 << 20


VALUES = {
    "consumerGroup": st.sampled_from(["g", "new", "off", "", "TOOLS_CONSUMER"]),
    "topic": st.sampled_from(["t", "gone", "batches", "closed", "%RETRY%g", ""]),
    "queueId": st.sampled_from(["0", "1", "2", "-1", "x", "01", ""]),
    "queueOffset": st.sampled_from(["0", "5", "11", "12", "13", "-1", "x", "9" * 18, "9" * 19]),
    "maxMsgNums": st.sampled_from(["0", "1", "32", "-1", "x", "99999"]),
    "maxMsgBytes": st.sampled_from(["0", "1", "300", "-1", "x", ""]),
    "sysFlag": st.sampled_from(["0", "1", "4", "5", "x"]),
    "commitOffset": st.sampled_from(["0", "5", "99", "-1", "x"]),
    "subscription": st.sampled_from(["*", "red", "", "red || blue", "a > 1"]),
    "subVersion": st.sampled_from(["0", "9", "x"]),
    "expressionType": st.sampled_from(["TAG", "SQL92", "", "x"]),
    "lo": st.sampled_from(["true", "false"]),
    "uncapped": st.sampled_from(["true", "x"]),
    "x": st.just("1"),
}


def _one_field(name: str) -> st.SearchStrategy[dict[str, str]]:
    return VALUES[name].map(lambda value: {name: value})


CHANGED = st.one_of(
    st.just({}), _one_field("queueOffset"), _one_field("queueId"), st.sampled_from(sorted(VALUES)).flatmap(_one_field)
)
CHUNK = st.lists(
    st.tuples(
        CHANGED,
        st.sampled_from((0,) * 9 + (FLAG_ONEWAY,)),
        st.sampled_from((HeaderType.JSON,) * 9 + (HeaderType.BINARY,)),
    ),
    min_size=1,
    max_size=10,
)


@settings(max_examples=scaled(60), deadline=None)
@given(CHANGED, st.lists(CHUNK, min_size=1, max_size=3))
@example({"topic": "batches"}, [[({}, 0, HeaderType.JSON)] * 4])
@example({"consumerGroup": "new"}, [[({}, 0, HeaderType.JSON)] * 4])
def test_whatever_is_pulled_is_answered_as_if_it_came_one_by_one(of_all: dict[str, str], chunks: list[Any]) -> None:
    async def both() -> None:
        with TemporaryDirectory() as directory:
            async with doors(Path(directory)) as (together, apart):
                code = RequestCode.PULL_MESSAGE
                for chunk in chunks:
                    commands = [
                        RemotingCommand(
                            code,
                            {**ORDINARY, **of_all, **fields},
                            b"",
                            number,
                            flag,
                            header_type=kind,
                        )
                        for number, (fields, flag, kind) in enumerate(chunk)
                    ]
                    assert await together.put(commands) == await apart.put(commands)
                assert pulled(together.broker) == pulled(apart.broker)
                assert committed(together.broker) == committed(apart.broker)

    asyncio.run(both())


@pytest.mark.parametrize("expression", ["red", "red || blue"])
async def test_pulls_with_a_filter_look_at_each_message_themselves(tmp_path: Path, expression: str) -> None:
    async with doors(tmp_path) as (together, apart):
        commands = pulls({}, {}, {}, subscription=expression)
        assert await together.put(commands) == await apart.put(commands)
        assert together.together == 0


async def test_a_pull_that_is_refused_fails_none_of_those_around_it(tmp_path: Path) -> None:
    commands = pulls({}, {}, {"queueId": "9"}, {"queueOffset": "5"}, {"queueId": "2"}, {}, sysFlag="5")
    async with doors(tmp_path) as (together, apart):
        answers = await together.put(commands)
        assert answers == await apart.put(commands)
        assert [answer.code == 0 for answer in answers.values()] == [True, True, False, True, False, True]
        assert pulled(together.broker) == pulled(apart.broker)


@pytest.mark.parametrize(
    "error", [StoreError("RECORD_DAMAGED", "The file of the queue is too short."), ZeroDivisionError("a defect")]
)
async def test_a_read_that_fails_is_the_answer_to_its_pull_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    read = MessageStore.read_together

    def fail(self: MessageStore, topic: str, queue_id: int, queue_offset: int, *limits: int) -> Any:
        if queue_offset == 5:
            raise error
        return read(self, topic, queue_id, queue_offset, *limits)

    monkeypatch.setattr(MessageStore, "read_together", fail)
    commands = pulls({}, {}, {"queueOffset": "5"}, {"queueOffset": "6"})
    async with doors(tmp_path) as (together, apart):
        answers = await together.put(commands)
        assert answers == await apart.put(commands)
        assert [answer.code == 0 for answer in answers.values()] == [True, True, False, True]
