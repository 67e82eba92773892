"""The job topic on a cluster: one queue that servers write and follow, locked by the leader."""

from __future__ import annotations

import threading
from typing import Final

from millstream.client.blocking import BlockingClient
from millstream.client.changelog_reader import ChangelogReader
from millstream.client.operations import ClientOperation, ClientOperations
from millstream.client.values import QueueAddress
from millstream.job_server.errors import JobServerError
from millstream.model.errors import NameRefused
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.settings import topic_fields
from millstream.protocol.remoting.bodies import decode_body, encode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.offsets import LockBody, LockedBody, QueueName

__all__ = ["JOBS_TOPIC", "REQUEST_TIMEOUT_S", "SERVERS_GROUP", "JobTopic"]

JOBS_TOPIC: Final = "millstream-jobs"
"""The compacted topic that keeps the jobs. It has one queue, so that all see its messages in one order."""

SERVERS_GROUP: Final = "millstream-job-servers"
"""The group by which the servers of a cluster lock that queue."""

REQUEST_TIMEOUT_S: Final = 3.0
"""Seconds that a broker may take for an answer."""


class JobTopic:
    """The topic over a connection of its own. Writes and locks take turns; one that reads does nothing else.

    Every call may raise ConnectionFailed.
    """

    def __init__(self, nameserver: str) -> None:
        self._client = BlockingClient(nameserver, timeout_s=REQUEST_TIMEOUT_S, group=SERVERS_GROUP)
        self._queue: QueueAddress | None = None
        self._turn = threading.Lock()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def reader(self) -> ChangelogReader:
        """Reads the topic from its beginning, over this connection. Raises what `queue` raises."""
        return ChangelogReader(self._client, self.queue())

    def write(self, key: str, body: bytes) -> None:
        """Keep the body under the key; a blank one deletes it. Raises what sends raise."""
        with self._turn:
            self._client.send_many([Message(JOBS_TOPIC, body, keys=(key,))], queue=self.queue())

    def lock(self, server: str) -> bool:
        """Whether the server has the queue for itself; it has for a while then, see `millstream.broker`."""
        with self._turn:
            return self._client.run(self._ask_for_lock(RequestCode.LOCK_BATCH_MQ, server))

    def unlock(self, server: str) -> None:
        """Let another server have the queue."""
        with self._turn:
            self._client.run(self._ask_for_lock(RequestCode.UNLOCK_BATCH_MQ, server))

    def queue(self) -> QueueAddress:
        """The queue of the topic, which is made if it is not there. Raises JobServerError ILLEGAL_JOB for another kind
        of topic, AccessRefused."""
        if self._queue is None:
            try:
                queues = self._client.queues(JOBS_TOPIC)
            except NameRefused as error:
                if error.name != "TOPIC_NOT_FOUND":
                    raise
                self._client.run(_make_topic(self._client.conversations))
                queues = self._client.queues(JOBS_TOPIC)
            if len(queues) != 1 or not self._client.describe_topic(JOBS_TOPIC).is_compacted:
                words = f"The topic {JOBS_TOPIC} has {len(queues)} queues or is not compacted."
                raise JobServerError("ILLEGAL_JOB", words, remedy="Delete it; job servers make it as they need it.")
            self._queue = queues[0]
        return self._queue

    def _ask_for_lock(self, code: RequestCode, server: str) -> ClientOperation[bool]:
        queue = self._client.conversations.present(self.queue())
        name = QueueName(queue.topic, queue.broker_name, queue.queue_id)
        body = encode_body(LockBody(SERVERS_GROUP, server, [name]))
        answer = yield from self._client.conversations.ask(queue.broker_address, RemotingCommand(code, {}, body))
        if code is RequestCode.UNLOCK_BATCH_MQ:
            return False
        return name in decode_body(LockedBody, answer.body).locked


def _make_topic(conversations: ClientOperations) -> ClientOperation[None]:
    """Make it on one broker alone: a queue on each would be several."""
    conversations.forget_route(JOBS_TOPIC)
    topic = TopicConfig(JOBS_TOPIC, read_queues=1, write_queues=1, attributes={"cleanup.policy": "COMPACTION"})
    address = min((yield from conversations.masters()))
    yield from conversations.ask(address, RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic)))
