"""Client operations about consumer groups: settings, progress, members, resets and dead letters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from millstream.client.operations import ClientOperation, ClientOperations, RequestStep
from millstream.client.routes import queue_of
from millstream.model.errors import NameRefused
from millstream.model.group import GroupConfig
from millstream.model.operations import DeadLetterPage, DeadLetterQuery, RedriveResult
from millstream.protocol.remoting.administration.consumption import (
    BrokerProgress,
    ConnectionData,
    ConsumerConnection,
    decode_consume_statistics,
)
from millstream.protocol.remoting.administration.dead_letters import (
    decode_dead_letter_page,
    decode_redrive_result,
    encode_dead_letter_query,
)
from millstream.protocol.remoting.administration.settings import decode_group, decode_group_table, encode_group
from millstream.protocol.remoting.bodies import decode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.refusals import error_of

__all__ = ["MAX_LETTERS_PER_REQUEST", "DeadLetterOperations", "GroupOperations"]


_NO_TIME: Final = "0"


class GroupOperations:
    """The operations, over the brokers that `conversations` finds."""

    def __init__(self, conversations: ClientOperations) -> None:
        self._conversations = conversations

    def create(self, config: GroupConfig) -> ClientOperation[None]:
        """Create the consumer group on every master; GROUP_EXISTS where it is there with other settings."""
        yield from self._put(config, {"createOnly": "true"})

    def update(self, config: GroupConfig) -> ClientOperation[None]:
        """Give the consumer group other settings on every master."""
        yield from self._put(config, {})

    def _put(self, config: GroupConfig, ext: dict[str, str]) -> ClientOperation[None]:
        body = encode_group(config)
        for address in (yield from self._conversations.masters()):
            command = RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP, dict(ext), body=body)
            yield from self._conversations.ask(address, command)

    def delete(self, name: str) -> ClientOperation[None]:
        """Delete the consumer group and its offsets on every master; GROUP_NOT_FOUND where none has it."""
        refused: NameRefused | None = None
        is_deleted = False
        for address in (yield from self._conversations.masters()):
            ext = {"groupName": name, "cleanOffset": "true", "mustExist": "true"}
            command = RemotingCommand(RequestCode.DELETE_SUBSCRIPTION_GROUP, ext)
            try:
                yield from self._conversations.ask(address, command)
                is_deleted = True
            except NameRefused as error:
                refused = error
        if refused is not None and not is_deleted:
            raise refused

    def all(self) -> ClientOperation[list[GroupConfig]]:
        """All consumer groups of all masters, by name."""
        found: dict[str, GroupConfig] = {}
        for address in (yield from self._conversations.masters()):
            answer = yield from self._conversations.ask(
                address, RemotingCommand(RequestCode.GET_ALL_SUBSCRIPTION_GROUP_CONFIG)
            )
            for group in decode_group_table(answer.body):
                found.setdefault(group.name, group)
        return [found[name] for name in sorted(found)]

    def describe(self, group: str) -> ClientOperation[GroupConfig]:
        """The group's settings, of the first master that has it; GROUP_NOT_FOUND."""
        refused: NameRefused | None = None
        for address in (yield from self._conversations.masters()):
            command = RemotingCommand(RequestCode.GET_SUBSCRIPTION_GROUP_CONFIG, {"group": group})
            try:
                return decode_group((yield from self._conversations.ask(address, command)).body)
            except NameRefused as error:
                refused = error
        assert refused is not None
        raise refused

    def progress(self, group: str, topic: str | None = None) -> ClientOperation[list[BrokerProgress]]:
        """How far the group is in each queue, of one topic or of all; GROUP_NOT_FOUND, TOPIC_NOT_FOUND."""
        ext = {"consumerGroup": group} | ({} if topic is None else {"topic": topic})
        found: list[BrokerProgress] = []
        refused: NameRefused | None = None
        answered = False
        for address in (yield from self._conversations.masters()):
            command = RemotingCommand(RequestCode.GET_CONSUME_STATS, dict(ext))
            try:
                found += decode_consume_statistics((yield from self._conversations.ask(address, command)).body)
                answered = True
            except NameRefused as error:
                # A group or topic need not be on every broker.
                refused = error
        if refused is not None and not answered:
            raise refused
        return sorted(found, key=lambda item: (item.progress.topic, item.broker_name, item.progress.queue_id))

    def members(self, group: str) -> ClientOperation[list[ConnectionData]]:
        """The group's consumers that are there now, by client id."""
        found: dict[str, ConnectionData] = {}
        for address in (yield from self._conversations.masters()):
            answer = yield RequestStep(
                address, RemotingCommand(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
            )
            if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
                continue
            if answer.code != ResponseCode.SUCCESS:
                raise error_of(answer, address)
            for member in decode_body(ConsumerConnection, answer.body).connection_set:
                found.setdefault(member.client_id, member)
        return [found[client_id] for client_id in sorted(found)]

    def reset(self, group: str, item: BrokerProgress, offset: int) -> ClientOperation[None]:
        """Put the group to an offset of one queue; ILLEGAL_OFFSET where the queue does not have it."""
        topic = item.progress.topic
        queues = yield from self._conversations.queues(topic)
        queue = queue_of(queues, item.broker_name, item.progress.queue_id)
        if queue is None:
            words = f"{item.broker_name} has no queue {item.progress.queue_id} of {topic!r}."
            raise NameRefused("QUEUE_NOT_FOUND", words)
        ext = {
            "topic": topic,
            "group": group,
            "timestamp": _NO_TIME,
            "isForce": "true",
            "queueId": str(queue.queue_id),
            "offset": str(offset),
        }
        command = RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
        yield from self._conversations.ask(queue.broker_address, command)


MAX_LETTERS_PER_REQUEST = 100
"""Dead letters that one request sends again at most, whatever it asks for."""

_T = TypeVar("_T")


class DeadLetterOperations:
    """The operations, each with one broker; `brokers` says which there are."""

    def __init__(self, conversations: ClientOperations) -> None:
        self._conversations = conversations

    def brokers(self) -> ClientOperation[list[str]]:
        """The addresses of the masters, each of which has dead letters of its own."""
        return (yield from self._conversations.masters())

    def page(self, address: str, query: DeadLetterQuery) -> ClientOperation[DeadLetterPage]:
        """Dead letters from an offset on."""
        body = encode_dead_letter_query(query)
        return (yield from self._ask(address, RequestCode.LIST_DEAD_LETTERS, body, decode_dead_letter_page))

    def redrive(self, address: str, query: DeadLetterQuery, target: str | None) -> ClientOperation[RedriveResult]:
        """Send some again, to where they come from or to `target`; the result says where to go on."""
        limited = replace(query, max_letters=min(query.max_letters, MAX_LETTERS_PER_REQUEST))
        body = encode_dead_letter_query(limited, target)
        return (yield from self._ask(address, RequestCode.REDRIVE_DEAD_LETTERS, body, decode_redrive_result))

    def _ask(self, address: str, code: RequestCode, body: bytes, decode: Callable[[bytes], _T]) -> ClientOperation[_T]:
        answer = yield from self._conversations.ask(address, RemotingCommand(code, body=body))
        return decode(answer.body)
