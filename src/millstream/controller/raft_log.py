"""The replicated log of several controllers: `RaftNode` in the event loop, with messages over remoting.

What a member keeps is synced in the loop's thread. That is a few writes for each change of a set, and nothing while
nothing changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from millstream.consensus.raft import NotLeader, RaftOptions, RaftRole
from millstream.consensus.raft_messages import decode_message, encode_message
from millstream.consensus.raft_node import NodeOutput, RaftNode
from millstream.consensus.raft_storage import RaftStorage
from millstream.controller.replica_sets import ReplicaSets, SetChange
from millstream.controller.replicated_log import ControllerPeer, LogRole, not_leader_error
from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import ConsumeRefused, MillstreamError, StoreError
from millstream.protocol.remoting.administration.controller_requests import RaftEnvelope
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_connection import Connection

__all__ = ["PROPOSAL_TIMEOUT_S", "RAFT_TICK_S", "ROUND_INTERVAL_S", "PeerMessages", "RaftLog"]

_log = logging.getLogger(__name__)

RAFT_TICK_S: Final = 0.03
"""Seconds between two looks at the time."""

PROPOSAL_TIMEOUT_S: Final = 3.0
"""Seconds after which a proposal or a barrier fails that no quorum has answered; the change may still be made."""

ROUND_INTERVAL_S: Final = 0.01
"""Seconds at least between two questions to the others whether this one leads; barriers that come meanwhile share the
next one. Without it each heartbeat of a master costs two messages and their answers."""


class PeerMessages(Protocol):
    """The way to the other controllers; see `PeerLines`."""

    def send(self, peer_id: str, message: bytes) -> None:
        """Send a message; it may get lost."""
        ...

    async def close(self) -> None:
        """Send nothing any more."""
        ...


class _SetsMachine:
    """The sets as what the group agrees on."""

    def __init__(self, sets: ReplicaSets) -> None:
        self._sets = sets

    def apply(self, data: bytes) -> bool:
        return self._sets.apply(SetChange.decode(data))

    def encode(self) -> bytes:
        return self._sets.encode()

    def restore(self, state: bytes) -> None:
        self._sets.restore(state)


class RaftLog:
    """A `ReplicatedLog` of 3 or 5 controllers. `start` begins, `receive` takes messages of the others.

    A disk that does not take what must be kept ends this member's part until the next start: it says nothing more, so
    the others go on without it.
    """

    def __init__(
        self,
        sets: ReplicaSets,
        group: str,
        me: ControllerPeer,
        peers: tuple[ControllerPeer, ...],
        storage: RaftStorage,
        messages: PeerMessages,
        *,
        options: RaftOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._group = group
        self._me = me
        self._peers = {peer.id: peer for peer in peers}
        self._messages = messages
        self._clock = clock or SystemClock()
        self._node = RaftNode(
            me.id, [peer.id for peer in peers], storage, _SetsMachine(sets), options=options, now_ms=self._now_ms()
        )
        self._proposals: dict[int, tuple[int, asyncio.Future[bool]]] = {}
        self._reads: dict[int, list[asyncio.Future[None]]] = {}
        """The barriers that wait for each read."""
        self._next_round: list[asyncio.Future[None]] = []
        """The barriers for which the others have not been asked yet."""
        self._next_round_s = 0.0
        """When they may be asked again, by the loop's clock."""
        self._failure: StoreError | None = None
        self._ticking: asyncio.Task[None] | None = None

    @property
    def role(self) -> LogRole:
        raft = self._node.raft
        if self._failure is not None:
            return LogRole.UNKNOWN
        if raft.leads:
            return LogRole.LEADER
        return LogRole.FOLLOWER if raft.role is RaftRole.FOLLOWER else LogRole.CANDIDATE

    @property
    def term(self) -> int:
        return self._node.raft.term

    @property
    def leader(self) -> ControllerPeer | None:
        found = self._node.raft.leader
        return None if found is None or self._failure is not None else self._peers.get(found)

    def start(self) -> None:
        """Take part from now on."""
        self._ticking = asyncio.get_running_loop().create_task(self._tick_forever(), name="raft-ticks")

    async def propose(self, change: SetChange) -> bool:
        self._check_disk()
        try:
            index, term, output = self._act(lambda: self._node.propose(change.encode(), self._now_ms()))
        except NotLeader as refusal:
            raise self._not_leader(refusal) from None
        future = asyncio.get_running_loop().create_future()
        self._proposals[index] = (term, future)
        self._handle(output)
        try:
            return await asyncio.wait_for(future, PROPOSAL_TIMEOUT_S)
        except TimeoutError:
            words = f"No quorum of the controllers has taken the change within {PROPOSAL_TIMEOUT_S:.0f} s."
            raise ConsumeRefused("CONTROLLER_LOG_FAILED", words) from None
        finally:
            self._proposals.pop(index, None)

    async def barrier(self) -> None:
        self._check_disk()
        if not self._node.raft.leads:
            raise not_leader_error(self.leader)
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._next_round.append(future)
        if len(self._next_round) == 1:
            wait_s = self._next_round_s - loop.time()
            if wait_s > 0:
                loop.call_later(wait_s, self._begin_round)
            else:
                self._begin_round()
        await future

    async def close(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        await self._messages.close()
        self._fail_all("The controller stops.")

    def receive(self, command: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        """Take a message of another controller (code 9110). One that is not for this group and member is logged."""
        envelope = RaftEnvelope.decode(command.ext)
        if envelope.group != self._group or envelope.receiver != self._me.id or envelope.sender not in self._peers:
            _log.warning(
                "A message of %.80r in group %.80r for %.80r was refused; this is %s in %s.",
                *(envelope.sender, envelope.group, envelope.receiver, self._me.id, self._group),
            )
            return None
        if self._failure is None:
            message = decode_message(command.body)
            self._step(lambda: self._node.receive(envelope.sender, message, self._now_ms()))
        return None

    def _begin_round(self) -> None:
        """Have the others confirm that this one leads, for all barriers that wait."""
        loop = asyncio.get_running_loop()
        waiting, self._next_round = self._next_round, []
        self._next_round_s = loop.time() + ROUND_INTERVAL_S
        try:
            number, output = self._act(lambda: self._node.request_read(self._now_ms()))
        except NotLeader as refusal:
            self._end_all(waiting, self._not_leader(refusal))
        except MillstreamError as error:
            self._end_all(waiting, error)
        else:
            self._reads[number] = waiting
            words = "No quorum of the controllers answers."
            loop.call_later(PROPOSAL_TIMEOUT_S, self._end_read, number, ConsumeRefused("CONTROLLER_LOG_FAILED", words))
            self._handle(output)

    def _end_read(self, number: int, error: MillstreamError | None) -> None:
        self._end_all(self._reads.pop(number, ()), error)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)

    async def _tick_forever(self) -> None:
        while self._failure is None:
            self._step(lambda: self._node.tick(self._now_ms()))
            await asyncio.sleep(RAFT_TICK_S)

    def _step(self, act: Callable[[], NodeOutput]) -> None:
        try:
            self._handle(self._act(act))
        except MillstreamError as error:
            _log.error("This controller takes no part any more until it is started again: %s", error)

    def _act(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except StoreError as error:
            # What is in memory is ahead of the disk from here on, so nothing of it may be shown to anybody.
            self._failure = error
            self._fail_all(error.message)
            raise ConsumeRefused("CONTROLLER_LOG_FAILED", error.message) from None

    def _handle(self, output: NodeOutput) -> None:
        for receiver, message in output.messages:
            self._messages.send(receiver, encode_message(message))
        for index, term, applied in output.applied:
            self._answer_proposal(index, term, bool(applied))
        if output.is_restored:
            self._fail_proposals("Another controller leads, and this one has its snapshot.")
        for number in output.ready_reads:
            self._end_read(number, None)
        for number in output.failed_reads:
            self._end_read(number, not_leader_error(self.leader))

    def _answer_proposal(self, index: int, term: int, applied: bool) -> None:
        proposed_term, future = self._proposals.get(index, (0, None))
        if future is None or future.done():
            return
        if proposed_term == term:
            future.set_result(applied)
        else:
            future.set_exception(not_leader_error(self.leader))

    def _fail_proposals(self, words: str) -> None:
        for _, future in self._proposals.values():
            self._end(future, ConsumeRefused("CONTROLLER_LOG_FAILED", words))

    def _fail_all(self, words: str) -> None:
        self._fail_proposals(words)
        failed = ConsumeRefused("CONTROLLER_LOG_FAILED", words)
        for number in list(self._reads):
            self._end_read(number, failed)
        waiting, self._next_round = self._next_round, []
        self._end_all(waiting, failed)

    def _end_all(self, futures: Iterable[asyncio.Future[None]], error: MillstreamError | None) -> None:
        for future in futures:
            self._end(future, error)

    @staticmethod
    def _end(future: asyncio.Future[Any] | None, error: MillstreamError | None) -> None:
        if future is None or future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def _check_disk(self) -> None:
        if self._failure is not None:
            raise ConsumeRefused("CONTROLLER_LOG_FAILED", self._failure.message)

    def _not_leader(self, refusal: NotLeader) -> MillstreamError:
        return not_leader_error(None if refusal.leader is None else self._peers.get(refusal.leader))
