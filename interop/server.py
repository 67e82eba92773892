"""A server as a program, and the means to make topics and groups in it."""

from __future__ import annotations

import itertools
from pathlib import Path

from millstream.client.blocking import BlockingClient
from millstream.model.group import ExponentialBackoff, GroupConfig
from millstream.model.topic import MessageType, TopicConfig
from millstream.security.signature import Credentials
from millstream.server.child import ServerProcess

_numbers = itertools.count()
_EVERY_SECOND = ExponentialBackoff(initial_ms=1000, longest_ms=1000, multiplier=1.0)


class Server:
    """A server and the means to make topics and groups in it."""

    def __init__(
        self, nameserver: str, broker: str, grpc: str, remoting: str, credentials: Credentials | None = None
    ) -> None:
        """Nameserver and broker for tools, where clients of gRPC come, and where those of remoting ask for routes.

        `credentials` are of a super user where there is access control.
        """
        self.nameserver, self.broker = nameserver, broker
        self.credentials = credentials
        self.access_delay_s = 0.0
        """How long a change of users and policies takes to hold where clients come in."""
        self.log = Path()
        """Where the one that clients talk to writes what it says, and with it the audit."""
        self.endpoint = grpc
        self.remoting = remoting

    @classmethod
    def of(cls, process: ServerProcess, credentials: Credentials | None = None) -> Server:
        """All roles in one process; clients of remoting talk to its broker."""
        addresses = process.addresses
        return cls(addresses.nameserver, addresses.broker, addresses.grpc, addresses.nameserver, credentials)

    def client(self) -> BlockingClient:
        """A client of our own for what an administrator does."""
        return BlockingClient(self.nameserver, credentials=self.credentials)

    def topic(self, kind: str = "NORMAL", *, queues: int = 4) -> str:
        """A new topic of that type; MIXED is what tools make that name no type."""
        name = f"t{next(_numbers)}"
        with self.client() as client:
            client.create_topic(TopicConfig(name, MessageType[kind], read_queues=queues, write_queues=queues))
        return name

    def group(self, client: str, *, fifo: bool = False, max_attempts: int = 17) -> str:
        """A new consumer group that waits a second before each retry, said so that the client understands it.

        Node's client reads only a curve, and else sets a failed FIFO message aside at once; Python's reads only steps.
        """
        name = f"g{next(_numbers)}"
        curve = _EVERY_SECOND if client == "node" else None
        with self.client() as admin:
            admin.create_group(
                GroupConfig(name, fifo=fifo, max_attempts=max_attempts, backoff_s=(1,), exponential=curve)
            )
        return name

    def topics(self) -> set[str]:
        """The names of all topics."""
        with self.client() as client:
            return {topic.name for topic in client.topics()}
