"""Reads messages by queue offset with long polling, by key, or by the log offset in an offset message id."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import Final

from millstream.broker.broker import SuggestReader
from millstream.broker.queues.puller import MAX_PULL_MESSAGES
from millstream.broker.queues.reads import QueueReads, Soon
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.offsets import answer_soon
from millstream.broker.remoting.pull_runs import PullRunAnswers
from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused, MillstreamError
from millstream.model.filter import MessageFilter
from millstream.model.operations import PullRequest, PullResult, PullStatus
from millstream.model.sql_filter import parse_filter
from millstream.model.topic import RETRY_PREFIX
from millstream.protocol.remoting.bodies import SubscriptionData
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.message_requests import KeySearchRequest, LogOffset
from millstream.protocol.remoting.messages.pulls import PullCall, decode_pull, pull_fields
from millstream.protocol.remoting.request_shape import RequestShape
from millstream.transport.remoting_connection import Connection
from millstream.transport.request_batches import RunAnswers, RunHandler

__all__ = ["CAPPED_PULL_BYTES", "CAPPED_PULL_MESSAGES", "PullHandler", "SearchHandlers", "pull_answer"]


CAPPED_PULL_BYTES: Final = 256 * 1024
"""Bytes of a pull by a RocketMQ client at most, and of one that names no limit of its own; the first message is given
even if it alone is larger. RocketMQ's limit for messages in memory; its lower one for those on disk has no use here."""

CAPPED_PULL_MESSAGES: Final = 32
"""Messages of a pull by a RocketMQ client at most, as RocketMQ gives of those in memory."""

_ANY_VERSION: Final = (1 << 63) - 1
"""No client has a later one."""

_CODES: Final = {
    PullStatus.FOUND: ResponseCode.SUCCESS,
    PullStatus.NOTHING_NEW: ResponseCode.PULL_NOT_FOUND,
    PullStatus.ALL_FILTERED: ResponseCode.PULL_RETRY_IMMEDIATELY,
    PullStatus.OFFSET_ILLEGAL: ResponseCode.PULL_OFFSET_MOVED,
}


class PullHandler(RunHandler):
    """Codes 11 and 361."""

    def __init__(
        self, queues: QueueReads, consumers: ConsumerRegistry, suggest_reader: SuggestReader | None = None
    ) -> None:
        self._queues = queues
        self._consumers = consumers
        self._suggest_reader = suggest_reader

    def __call__(
        self, command: RemotingCommand, connection: Connection
    ) -> Awaitable[RemotingCommand] | RemotingCommand:
        """Answer with records, or after the suspend time without."""
        call = decode_pull(command.ext)
        wanted = call.filter
        if wanted is None:
            self._queues.check_group(call.group)
            subscription = self._find_subscription(call)
            if subscription is None:
                remark = f"Group {call.group} has no subscription to topic {call.topic}."
                return command.response(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark=remark)
            if subscription.sub_version < call.sub_version:
                remark = (
                    f"Group {call.group} has an older subscription to topic {call.topic} here; a heartbeat brings it."
                )
                return command.response(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark=remark)
            wanted = _filter_of(subscription)
        max_messages, max_bytes = _limits_of(call)
        request = PullRequest(
            call.group, call.topic, call.queue_id, call.queue_offset, max_messages, max_bytes, wanted, call.wait_ms
        )
        physical, queues = call.is_physical, self._queues
        committed: Soon[None] = None
        if call.commit_offset is not None:
            # The answer says where the queue ends, to a reader that is behind its end as well.
            with suppress(ConsumeRefused):
                committed = queues.commit(call.group, call.topic, call.queue_id, call.commit_offset, physical=physical)
        if committed is None:
            result = queues.pull_now(request, physical=physical)
            if result is not None:
                return self._answer_with(command, request, result, physical)
        return self._answer(command, request, physical, connection, committed)

    def open_run(self, shape: RequestShape) -> RunAnswers | None:
        """As `RunHandler.open_run`: where the group wants all messages of a topic of this broker alone."""
        try:
            call = decode_pull(shape.fields)
            wanted = call.filter
            if wanted is None:
                subscription = self._find_subscription(call)
                if subscription is None or subscription.sub_version < call.sub_version:
                    return None
                wanted = _filter_of(subscription)
        except MillstreamError:
            # The general way says what is wrong, to each.
            return None
        reader = self._queues.open_run(call.group, call.topic) if wanted.takes_all and not call.is_physical else None
        if reader is None:
            return None
        suggest = None if self._suggest_reader is None else partial(self._suggest, self._suggest_reader, call.topic)
        commit = None if call.commit_offset is None else partial(self._commit, call.group, call.topic)
        return PullRunAnswers(reader, *_limits_of(call), suggest, commit)

    def _find_subscription(self, call: PullCall) -> SubscriptionData | None:
        return self._consumers.subscription(call.group, call.topic) or _own_subscription(call.group, call.topic)

    def _suggest(self, suggest_reader: SuggestReader, topic: str, queue_id: int, next_offset: int) -> int:
        return suggest_reader(queue_id, self._queues.backlog_bytes(topic, queue_id, next_offset))

    def _commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        with suppress(ConsumeRefused):
            self._queues.commit(group, topic, queue_id, queue_offset)

    async def _answer(
        self,
        command: RemotingCommand,
        request: PullRequest,
        physical: bool,
        connection: Connection,
        committed: Awaitable[None] | None,
    ) -> RemotingCommand:
        if committed is not None:
            await committed
        result = await self._queues.pull(request, physical=physical, pace=connection)
        return self._answer_with(command, request, result, physical)

    def _answer_with(
        self, command: RemotingCommand, request: PullRequest, result: PullResult, physical: bool
    ) -> RemotingCommand:
        if self._suggest_reader is None or not result.records:
            return pull_answer(command, result)
        backlog_bytes = self._queues.backlog_bytes(
            request.topic, request.queue_id, result.next_offset, physical=physical
        )
        return pull_answer(command, result, self._suggest_reader(request.queue_id, backlog_bytes))


def _own_subscription(group: str, topic: str) -> SubscriptionData | None:
    """A group wants everything of its retry topic, whether or not its members say so."""
    return SubscriptionData(topic, sub_version=_ANY_VERSION) if topic == RETRY_PREFIX + group else None


def _filter_of(subscription: SubscriptionData) -> MessageFilter:
    return parse_filter(subscription.expression_type or "", subscription.sub_string or "")


def _limits_of(call: PullCall) -> tuple[int, int]:
    """Messages and bytes of its answer at most."""
    max_bytes = CAPPED_PULL_BYTES if call.max_bytes is None else call.max_bytes
    if call.is_uncapped:
        return min(call.max_messages, MAX_PULL_MESSAGES), max_bytes
    return min(call.max_messages, CAPPED_PULL_MESSAGES), min(max_bytes, CAPPED_PULL_BYTES)


def pull_answer(command: RemotingCommand, result: PullResult, suggested_id: int = 0) -> RemotingCommand:
    """The answer to a pull or a bulk fetch; `suggested_id` is where RocketMQ's clients send their next pull."""
    ext = pull_fields(suggested_id, result.next_offset, result.min_offset, result.max_offset)
    return command.response(_CODES[result.status], ext=ext, body_parts=result.records)


_UNIQUE_KEY_RESULTS: Final = 32
"""What a search by unique key answers at most, whatever it asks for; RocketMQ's rule."""


class SearchHandlers:
    """Codes 12 and 33."""

    def __init__(self, queues: QueueReads, clock: Clock) -> None:
        self._queues = queues
        self._clock = clock

    async def by_key(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        """Records with a key, newest first; QUERY_NOT_FOUND where there are none."""
        call = KeySearchRequest.decode(command.ext)
        topic, key = call.topic, call.key
        most = _UNIQUE_KEY_RESULTS if call.is_unique else call.max_results
        records = await self._queues.find_by_key(topic, key, call.begin_ms, call.end_ms, most)
        if not records:
            remark = f"Topic {topic} has no message with the key {key[:200]!r} in that time."
            return command.response(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        found = {
            "indexLastUpdateTimestamp": str(self._clock.now_ms()),
            "indexLastUpdatePhyoffset": str(self._queues.visible_log_offset),
        }
        return command.response(ext=found, body_parts=tuple(records))

    def by_offset(self, command: RemotingCommand, _connection: Connection) -> Soon[RemotingCommand]:
        """The record at a log offset."""
        log_offset = LogOffset.decode(command.ext).log_offset

        def answer(record: bytes | memoryview | None) -> RemotingCommand:
            if record is None:
                words = f"No message begins at log offset {log_offset}."
                return command.response(ResponseCode.SYSTEM_ERROR, remark=words)
            return command.response(body_parts=(record,))

        return answer_soon(self._queues.find_record(log_offset), answer)
