"""The same client for synchronous callers, on plain blocking sockets: no event loop, no threads, safe after a fork."""

from __future__ import annotations

import os
import re
import select
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from millstream.client import requests
from millstream.client.group_operations import GroupOperations
from millstream.client.operations import SEND_RETRIES, ClientOperation, ClientOperations, RequestStep, parse_addresses
from millstream.client.outgoing import QueueSelector, outgoing_properties
from millstream.client.profiles import credentials_of_environment, tls_of_environment
from millstream.client.replica_reads import ReadFrom
from millstream.client.static_topics import StaticTopicOperations
from millstream.client.topic_operations import TopicOperations
from millstream.client.values import BrokerQueueRange, PullBatch, QueueAddress, SendResult, range_is_gone
from millstream.model.errors import (
    ConnectionFailed,
    MillstreamError,
    NameRefused,
    NotConnected,
    Refused,
    TimedOut,
    Unreachable,
)
from millstream.model.filter import ALL, MessageFilter
from millstream.model.group import GroupConfig
from millstream.model.handles import RecallHandle
from millstream.model.message import Message, StoredMessage
from millstream.model.operations import PullStatus
from millstream.model.topic import ColumnAttributes, Permission, TopicConfig, is_system_topic
from millstream.protocol.record import decode_record, offset_message_id
from millstream.protocol.remoting.administration.consumption import BrokerProgress, ConnectionData
from millstream.protocol.remoting.bodies import TopicRouteData
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.frame import MAX_ANSWER_HEADER_BYTES, FrameDecoder, encode_frame
from millstream.protocol.remoting.messages.cold_ranges import ColdRangesBody
from millstream.security.signature import Credentials
from millstream.transport.signing import sign_command

__all__ = ["DEFAULT_NAMESERVER", "MAX_SEARCHED_TOPICS", "BlockingClient", "BlockingConnection", "MessageSearch"]


_RECEIVE_BYTES: Final = 256 * 1024
_OPAQUE_LIMIT: Final = 0x7FFF_FFFF


class BlockingConnection:
    """A connection to `host:port`. After any error it is closed and of no more use."""

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connect; NotConnected where nothing answers in time. `credentials` sign the requests."""
        self._address = address
        self._credentials = credentials
        self._decoder = FrameDecoder(max_header_bytes=MAX_ANSWER_HEADER_BYTES)
        self._opaque = 0
        host, _, port = address.rpartition(":")
        try:
            self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host.strip("[]"))
        except TimeoutError:
            raise NotConnected(f"{address} does not answer within {timeout_s:g} s.") from None
        except OSError as error:
            raise NotConnected(f"{address} cannot be reached: {error.strerror or error}.") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def is_open(self) -> bool:
        """Whether it can be used: not closed, and nothing unasked has arrived, such as the server's close."""
        if self._socket.fileno() < 0:
            return False
        poller = select.poll()  # Not select(), which refuses descriptors of 1,024 and more.
        poller.register(self._socket, select.POLLIN)
        return not poller.poll(0)

    def request(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """The answer to `command`, whatever its code. Raises TimedOut, Unreachable, PROTOCOL_VIOLATION."""
        deadline_s = time.monotonic() + timeout_s
        command.opaque = self._opaque = (self._opaque + 1) & _OPAQUE_LIMIT
        if self._credentials is not None:
            sign_command(command, self._credentials)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(b"".join(encode_frame(command)))
            while True:
                for received in self._decoder.feed(self._receive(deadline_s)):
                    if received.is_response and received.opaque == command.opaque:
                        return received
        except TimeoutError:
            self.close()
            raise TimedOut(f"{self._address} did not answer within {timeout_s:g} s.") from None
        except OSError as error:
            self.close()
            raise Unreachable(f"{self._address} closed the connection: {error.strerror or error}.") from None
        except ConnectionFailed as error:
            self.close()
            raise ConnectionFailed(error.name, f"{self._address} does not speak remoting: {error.message}") from None

    def close(self) -> None:
        """Close; in a forked child this leaves the parent's connection as it is."""
        self._socket.close()

    def _receive(self, deadline_s: float) -> bytes:
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        self._socket.settimeout(remaining_s)
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("the server ended it")
        return data


MAX_SEARCHED_TOPICS: Final = 1000
"""Topics that are searched at most where none is named: each one is a request to each of its brokers."""

_OFFSET_ID = re.compile(r"(?:[0-9A-Fa-f]{8}|[0-9A-Fa-f]{32})[0-9A-Fa-f]{8}([0-9A-Fa-f]{16})")
"""Address (IPv4 or IPv6), port and log offset. An id of a producer's library may look the same."""


class MessageSearch:
    """The search, over the brokers that `conversations` finds."""

    def __init__(self, conversations: ClientOperations) -> None:
        self._conversations = conversations

    def find(
        self, name: str, topic: str | None = None, *, max_results: int = 32
    ) -> ClientOperation[list[StoredMessage]]:
        """The messages of that id, offset id or key, newest first.

        Raises TOPIC_NOT_FOUND; SEARCH_TOO_WIDE where no topic is named and there are too many.
        """
        found = yield from self._at(name)
        if found is not None and topic in (None, found.topic):
            return [found]
        topics = [topic] if topic is not None else (yield from self._topics())
        messages: list[StoredMessage] = []
        for one in topics:
            search = self._conversations.find_by_key(one, name, begin_ms=0, end_ms=2**62, max_results=max_results)
            try:
                messages += yield from search
            except NameRefused as error:
                if topic is not None or error.name != "TOPIC_NOT_FOUND":
                    raise
        return sorted(messages, key=lambda message: message.store_timestamp_ms, reverse=True)[:max_results]

    def _at(self, offset_id: str) -> ClientOperation[StoredMessage | None]:
        """The message whose place the id says; None where it is no such id, or of none of the brokers."""
        match = _OFFSET_ID.fullmatch(offset_id)
        log_offset = int(match[1], 16) if match else 1 << 63
        if log_offset >= 1 << 63:
            return None
        for address in (yield from self._conversations.masters()):
            command = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(log_offset)})
            try:
                message = decode_record((yield from self._conversations.ask(address, command)).body)
            except Refused:
                continue  # Another broker's, no offset id at all, or a user who may not ask so: keys are left to try.
            if offset_message_id(message.store_host, message.log_offset) == offset_id.upper():
                return message
        return None

    def _topics(self) -> ClientOperation[list[str]]:
        topics = yield from TopicOperations(self._conversations).all()
        names = [topic.name for topic in topics if not is_system_topic(topic.name)]
        if len(names) > MAX_SEARCHED_TOPICS:
            words = f"There are {len(names):,} topics; {MAX_SEARCHED_TOPICS:,} are searched at most."
            raise NameRefused("SEARCH_TOO_WIDE", words)
        return names


DEFAULT_NAMESERVER = "127.0.0.1:9876"

_T = TypeVar("_T")


class BlockingClient:
    """One thread's access to a cluster; a context manager.

    `nameserver` is `host:port`, several separated by `;`. Every call raises Unreachable or TimedOut (after
    `timeout_s`), or the server's refusal. `group` names the application where a request must name one. `credentials`
    sign the requests; by default those of MILLSTREAM_ACCESS_KEY and MILLSTREAM_SECRET_KEY, if they are set. `tls` is
    what servers are verified with; by default the certificates of MILLSTREAM_TLS_CA; without either, plaintext is used.
    """

    def __init__(
        self,
        nameserver: str = DEFAULT_NAMESERVER,
        *,
        timeout_s: float = 3.0,
        group: str = requests.DEFAULT_GROUP,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._credentials = credentials or credentials_of_environment()
        self._tls = tls or tls_of_environment()
        self.group = group
        self.conversations = ClientOperations(parse_addresses(nameserver), group=group, failover_s=timeout_s)
        self._topic_conversations = TopicOperations(self.conversations)
        self._group_conversations = GroupOperations(self.conversations)
        self._placement = QueueSelector()
        self._connections: dict[str, BlockingConnection] = {}
        self._process = os.getpid()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    # topics and queues

    def route(self, topic: str) -> TopicRouteData:
        """Where the topic lies; TOPIC_NOT_FOUND."""
        return self.run(self.conversations.route(topic))

    def queues(self, topic: str, permission: Permission = Permission.READ) -> list[QueueAddress]:
        """The topic's queues with that permission, sorted."""
        return self.run(self.conversations.queues(topic, permission))

    def queue_ranges(self, topic: str, *, read_from: ReadFrom = ReadFrom.MASTER) -> list[BrokerQueueRange]:
        """What can be read of each queue; one atomic look per broker. With REPLICA see `ClientOperations`."""
        return self.run(self.conversations.queue_ranges(topic, read_from=read_from))

    def offset_by_time(
        self,
        queue: QueueAddress,
        timestamp_ms: int,
        *,
        upper: bool = False,
        read_from: ReadFrom = ReadFrom.MASTER,
    ) -> int:
        """The first offset stored at `timestamp_ms` or later; `upper`: the last one stored then or earlier."""
        return self.run(self.conversations.offset_by_time(queue, timestamp_ms, upper=upper, read_from=read_from))

    def cold_ranges(self, queue: QueueAddress, begin: int, end: int) -> list[ColdRangesBody]:
        """Where messages lie that the broker's disk no longer holds; see `ClientOperations`."""
        return self.run(self.conversations.cold_ranges(queue, begin, end))

    # messages

    def pull(
        self,
        queue: QueueAddress,
        offset: int,
        *,
        max_messages: int = requests.DEFAULT_PULL_MESSAGES,
        max_bytes: int = requests.DEFAULT_PULL_BYTES,
        wait_ms: int = 0,
        filter: MessageFilter = ALL,
        read_from: ReadFrom = ReadFrom.MASTER,
    ) -> PullBatch:
        """One batch from `offset` on; after `wait_ms` with nothing new, a batch without records."""
        return self.run(
            self.conversations.pull(
                queue,
                offset,
                max_messages=max_messages,
                max_bytes=max_bytes,
                wait_ms=wait_ms,
                filter=filter,
                read_from=read_from,
            )
        )

    def read(
        self, queue: QueueAddress, begin: int, end: int, *, max_bytes: int = requests.DEFAULT_PULL_BYTES
    ) -> Iterator[PullBatch]:
        """All records with `begin <= offset < end`, batch by batch; ILLEGAL_OFFSET where some are not there."""
        offset = begin
        while offset < end:
            limit = min(end - offset, requests.DEFAULT_PULL_MESSAGES)
            batch = self.pull(queue, offset, max_messages=limit, max_bytes=max_bytes)
            if batch.status is PullStatus.FOUND:
                yield batch
            elif batch.status is not PullStatus.ALL_FILTERED or batch.next_offset <= offset:
                raise range_is_gone(queue, offset, end, batch)
            offset = batch.next_offset

    def send(self, message: Message) -> SendResult:
        """Store one message in a request of its own, as delayed ones need it to get a recall handle."""
        queue = self._placement.queue(message, self.queues(message.topic, Permission.WRITE))
        message_id = self._placement.next_id()
        properties = outgoing_properties(message, message_id)
        request = requests.send_one(queue, message.body, properties, group=self.group)
        may_move = message.message_group is None
        return self.run(self.conversations.send(queue, request, [message_id], may_move=may_move))[0]

    def recall(self, handle: RecallHandle) -> None:
        """Take a delayed message back, so that it is never delivered. MESSAGE_NOT_FOUND, TOPIC_NOT_FOUND."""
        self.run(self.conversations.recall(handle))

    def send_many(
        self,
        messages: Sequence[Message],
        *,
        ordered: bool = False,
        by_key: bool = False,
        queue: QueueAddress | None = None,
        retries: int = SEND_RETRIES,
    ) -> list[SendResult]:
        """Store messages in batch requests, one after the other; the receipts stand in the order of the messages.

        With `ordered`, the store times of all queues together follow the order of the messages. With `by_key` (not
        both) all messages of a key go to one queue; with `queue` all go there and nowhere else, in their order.
        Without `retries` no message is stored twice, but sends fail early.
        """
        queues = {
            topic: self.queues(topic, Permission.WRITE) if queue is None else [queue]
            for topic in dict.fromkeys(message.topic for message in messages)
        }
        by_key = by_key or queue is not None
        receipts: list[SendResult | None] = [None] * len(messages)
        if ordered:
            batches = self._placement.ordered_batches(messages, queues.__getitem__)
        else:
            lists = self._placement.batches(messages, queues.__getitem__, by_key=by_key)
            batches = (batch for one_queue in lists for batch in one_queue)
        for batch in batches:
            request = batch.request(self.group)
            sent = self.run(
                self.conversations.send(
                    batch.queue, request, batch.message_ids, retries=retries, may_move=batch.may_move
                )
            )
            for position, receipt in zip(batch.positions, sent, strict=True):
                receipts[position] = receipt
        return [receipt for receipt in receipts if receipt is not None]

    def find_by_key(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = 2**62, max_results: int = 32
    ) -> list[StoredMessage]:
        """Messages with the key or unique key, stored in that time, newest first; 64 of a broker at most."""
        return self.run(
            self.conversations.find_by_key(topic, key, begin_ms=begin_ms, end_ms=end_ms, max_results=max_results)
        )

    def find_messages(self, name: str, topic: str | None = None, *, max_results: int = 32) -> list[StoredMessage]:
        """Messages of that id, offset message id or key, newest first, of one topic or of all; SEARCH_TOO_WIDE."""
        return self.run(MessageSearch(self.conversations).find(name, topic, max_results=max_results))

    # consumer offsets

    def query_offset(self, group: str, queue: QueueAddress) -> int | None:
        """The group's committed offset, or None."""
        return self.run(self.conversations.query_offset(group, queue))

    def commit_offset(self, group: str, queue: QueueAddress, offset: int) -> None:
        """Keep the group's offset in the broker."""
        self.run(self.conversations.commit_offset(group, queue, offset))

    # administration

    def create_topic(self, config: TopicConfig) -> None:
        """Create a topic; nothing happens if it is there with the same settings, else TOPIC_EXISTS."""
        self.run(self._topic_conversations.create(config))

    def add_queues(self, name: str, queues: int) -> None:
        """Give a topic so many queues; TOPIC_NOT_FOUND, FEWER_QUEUES, ILLEGAL_STATIC_TOPIC."""
        self.run(self._topic_conversations.add_queues(name, queues))

    def declare_columns(self, name: str, copy: ColumnAttributes) -> None:
        """Have a topic's cold messages copied as these columns; TOPIC_NOT_FOUND, ILLEGAL_TOPIC."""
        self.run(self._topic_conversations.declare_columns(name, copy))

    def create_static_topic(self, config: TopicConfig, queues: int, brokers: Sequence[str] | None = None) -> None:
        """Create a topic whose queues can be moved, or give it more; TOPIC_EXISTS where it has other settings."""
        self.run(StaticTopicOperations(self.conversations).create(config, queues, brokers))

    def remap_topic(self, name: str, brokers: Sequence[str]) -> dict[int, str]:
        """Spread a static topic's queues over these brokers; where those that moved are. STATIC_TOPIC_STATE."""
        return self.run(StaticTopicOperations(self.conversations).remap(name, brokers))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its messages; TOPIC_NOT_FOUND."""
        self.run(self._topic_conversations.delete(name))

    def topics(self) -> list[TopicConfig]:
        """All topics, by name."""
        return self.run(self._topic_conversations.all())

    def describe_topic(self, name: str) -> TopicConfig:
        """One topic's settings; TOPIC_NOT_FOUND."""
        return self.run(self._topic_conversations.describe(name))

    def create_group(self, config: GroupConfig) -> None:
        """Create a consumer group; nothing happens if it is there with the same settings, else GROUP_EXISTS."""
        self.run(self._group_conversations.create(config))

    def update_group(self, config: GroupConfig) -> None:
        """Give a consumer group other settings; it is created if it is missing."""
        self.run(self._group_conversations.update(config))

    def delete_group(self, name: str) -> None:
        """Delete a consumer group and its offsets; GROUP_NOT_FOUND."""
        self.run(self._group_conversations.delete(name))

    def groups(self) -> list[GroupConfig]:
        """All consumer groups, by name."""
        return self.run(self._group_conversations.all())

    def describe_group(self, name: str) -> GroupConfig:
        """One group's settings; GROUP_NOT_FOUND."""
        return self.run(self._group_conversations.describe(name))

    def group_progress(self, name: str, topic: str | None = None) -> list[BrokerProgress]:
        """How far a group is in each queue of a topic, or of all in which it has a position."""
        return self.run(self._group_conversations.progress(name, topic))

    def group_members(self, name: str) -> list[ConnectionData]:
        """The group's consumers that are there now."""
        return self.run(self._group_conversations.members(name))

    def reset_offset(self, name: str, item: BrokerProgress, offset: int) -> None:
        """Put the group to an offset of one queue; deliveries in flight there are discarded. ILLEGAL_OFFSET."""
        self.run(self._group_conversations.reset(name, item, offset))

    # inside

    def run(self, conversation: ClientOperation[_T]) -> _T:
        """Ask what the conversation wants to know, until it is over; its result."""
        try:
            ask = next(conversation)
            while True:
                try:
                    answer = self._ask(ask)
                except MillstreamError as error:
                    ask = conversation.throw(error)
                else:
                    ask = conversation.send(answer)
        except StopIteration as end:
            result: _T = end.value
            return result

    def _ask(self, ask: RequestStep) -> RemotingCommand:
        if ask.delay_s:
            time.sleep(ask.delay_s)
        if os.getpid() != self._process:
            # A fork shares the sockets; the child closes its copies and connects for itself.
            self.close()
            self._process = os.getpid()
        connection = self._connections.get(ask.address)
        if connection is None or not connection.is_open:
            if connection is not None:
                connection.close()
            connection = BlockingConnection(
                ask.address, timeout_s=self._timeout_s, credentials=self._credentials, tls=self._tls
            )
            self._connections[ask.address] = connection
        return connection.request(ask.command, self._timeout_s + ask.extra_wait_s)
