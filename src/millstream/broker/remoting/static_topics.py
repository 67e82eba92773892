"""Static topics over remoting: their mappings, and the requests of clients about logic queues.

A request about a static topic means a logic queue unless its field `lo` is "false", as in RocketMQ; for these the
handlers of ordinary queues are kept. Statistics (202) are of the broker's own queues unless `lo` is "true".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from millstream.broker.broker import Broker
from millstream.model.errors import NameRefused
from millstream.model.group import FirstPosition
from millstream.protocol.remoting.bodies import encode_topic_statistics
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import integer, optional_integer, text
from millstream.protocol.remoting.segment_pops import parse_pop, pop_answer
from millstream.protocol.remoting.static_topics import (
    LOGIC_BROKER_NAME,
    decode_mapping,
    encode_topic_state,
    parse_static_topic,
)
from millstream.transport.remoting_connection import Connection, Handler

__all__ = ["static_topic_handlers"]

_COMMIT_OFFSET: Final = 1

_Answer = RemotingCommand | None
_Logic = Callable[[RemotingCommand, Connection], Awaitable[RemotingCommand]]


def static_topic_handlers(broker: Broker, ordinary: Mapping[int, Handler]) -> dict[int, Handler]:
    """The handlers of static topics, and those of logic queues in front of the ordinary ones."""
    own = _Handlers(broker)
    queues = _QueueHandlers(broker, ordinary[RequestCode.PULL_MESSAGE])
    answers: dict[int, _Logic] = {
        RequestCode.PULL_MESSAGE: queues.pull,
        RequestCode.LITE_PULL_MESSAGE: queues.pull,
        RequestCode.GET_MAX_OFFSET: queues.max_offset,
        RequestCode.GET_MIN_OFFSET: queues.min_offset,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: queues.offset_by_time,
        RequestCode.GET_EARLIEST_MSG_STORE_TIME: queues.earliest_stored,
        RequestCode.QUERY_CONSUMER_OFFSET: queues.query_consumer_offset,
        RequestCode.UPDATE_CONSUMER_OFFSET: queues.update_consumer_offset,
        RequestCode.UPDATE_AND_CREATE_TOPIC: queues.refuse,
    }
    found = {code: _for_logic_queues(broker, ordinary[code], answer) for code, answer in answers.items()}
    statistics = RequestCode.GET_TOPIC_STATS_INFO
    found[statistics] = _for_logic_queues(broker, ordinary[statistics], queues.statistics, when_asked=True)
    found[RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC] = own.change
    found[RequestCode.GET_TOPIC_CONFIG] = own.state
    found[RequestCode.SEGMENT_POP] = own.pop_segment
    return found


def _for_logic_queues(broker: Broker, ordinary: Handler, logic: _Logic, *, when_asked: bool = False) -> Handler:
    """Of static topics `logic` answers, unless the request names the broker's own queue, or (`when_asked`) does not
    name a logic one."""

    def handle(command: RemotingCommand, connection: Connection) -> Awaitable[RemotingCommand | None] | _Answer:
        ext = command.ext
        said = ext.get("lo")
        is_logic = said == "true" if when_asked else said != "false"
        if is_logic and broker.static_topics.find(ext.get("topic", "")) is not None:
            return logic(command, connection)
        return ordinary(command, connection)

    return handle


class _Handlers:
    """Codes 351, 513 and 9121."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def change(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Create or change a static topic; what moves away has stored its last message when this is answered."""
        config = parse_static_topic(command.ext)
        await self._broker.logic.change(config, decode_mapping(command.body), force=command.ext.get("force") == "true")
        return command.response()

    def state(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """A topic's settings, with its mapping where it is static."""
        config = self._broker.topics.get(text(command.ext, "topic"))
        return command.response(body=encode_topic_state(config, self._broker.static_topics.find(config.name)))

    async def pop_segment(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Messages of one of this broker's own queues, for the broker that leads the logic queue now."""
        taken, is_consumed = await self._broker.logic.pops.pop_segment(parse_pop(command))
        return pop_answer(command, taken, is_consumed)


class _QueueHandlers:
    """Codes 11, 14, 15, 17, 29 to 32, 202 and 361 about logic queues."""

    def __init__(self, broker: Broker, pull: Handler) -> None:
        self._broker = broker
        self._pull = pull

    async def pull(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        ext = command.ext
        flags = integer(ext, "sysFlag")
        if flags & _COMMIT_OFFSET:
            await self._commit(ext, optional_integer(ext, "commitOffset", -1))
            ext["sysFlag"] = str(flags & ~_COMMIT_OFFSET)
        answer = self._pull(command, connection)
        if isinstance(answer, Awaitable):
            answer = await answer
        assert answer is not None
        return answer

    async def max_offset(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        held = await self._broker.logic.reader.range_of(*_queue(command.ext))
        return command.response(ext={"offset": str(held.max_offset)})

    async def min_offset(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        held = await self._broker.logic.reader.range_of(*_queue(command.ext))
        return command.response(ext={"offset": str(held.min_offset)})

    async def offset_by_time(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        ext = command.ext
        upper = ext.get("boundaryType", "LOWER").upper() == "UPPER"
        reader = self._broker.logic.reader
        offset = await reader.offset_by_time(*_queue(ext), integer(ext, "timestamp"), upper)
        return command.response(ext={"offset": str(offset)})

    async def earliest_stored(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        stored_ms = await self._broker.logic.reader.first_stored_ms(*_queue(command.ext))
        return command.response(ext={"timestamp": str(-1 if stored_ms is None else stored_ms)})

    async def statistics(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """The logic queues that this broker leads, each as of the moment in which it was asked for."""
        topic = text(command.ext, "topic")
        ranges = await self._broker.logic.reader.ranges(topic)
        return command.response(body=encode_topic_statistics(topic, LOGIC_BROKER_NAME, ranges))

    async def query_consumer_offset(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        ext = command.ext
        group, (topic, number) = text(ext, "consumerGroup"), _queue(ext)
        positions = self._broker.logic.positions
        offset = await positions.committed(group, topic, number)
        if offset is None and ext.get("setZeroIfNotFound") != "false":
            offset = await self._first_offset(group, topic, number)
        if offset is None:
            remark = f"Group {group} has no offset in queue {number} of topic {topic}."
            return command.response(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return command.response(ext={"offset": str(offset)})

    async def update_consumer_offset(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        await self._commit(command.ext, integer(command.ext, "commitOffset"))
        return command.response()

    async def refuse(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        raise NameRefused(
            "ILLEGAL_STATIC_TOPIC",
            f"The topic {command.ext.get('topic')!r} is static; its queues are not counted by broker.",
            remedy="Delete it first, or move its queues: millstream topic remap NAME --brokers A,B.",
        )

    async def _commit(self, ext: Mapping[str, str], offset: int) -> None:
        group = text(ext, "consumerGroup")
        self._broker.groups.ensure(group)
        await self._broker.logic.positions.commit(group, *_queue(ext), offset)

    async def _first_offset(self, group: str, topic: str, number: int) -> int | None:
        """As for ordinary queues: a new group begins with all of a queue of which nothing was deleted."""
        config, positions = self._broker.groups.find(group), self._broker.logic.positions
        if config is not None and config.first_position is not FirstPosition.FIRST:
            offset = await positions.first_offset(config, topic, number)
            await positions.commit(group, topic, number, offset)
            return offset
        held = await self._broker.logic.reader.range_of(topic, number)
        return 0 if held.min_offset == 0 else None


def _queue(ext: Mapping[str, str]) -> tuple[str, int]:
    return text(ext, "topic"), integer(ext, "queueId")
