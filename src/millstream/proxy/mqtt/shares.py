"""Shared subscriptions: one light queue per share name and filter, consumed by its members together.

The group is a consumer group of that name, so what its members have not consumed shows where all groups are shown, and
what fails too often goes to its dead letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

from millstream.model.errors import MillstreamError, NameRefused
from millstream.model.group import check_group_name, is_tool_group
from millstream.model.operations import PoppedMessage
from millstream.model.routing.routes import LightQueueConfig
from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.proxy.mqtt.light_queue_reader import LightQueueReader, Taken, TakenMessage
from millstream.proxy.mqtt.light_routes import SESSION_GROUP, share_queue_name
from millstream.proxy.mqtt.services import MqttServices
from millstream.proxy.mqtt.session import MqttSession
from millstream.proxy.mqtt.subscriptions import SessionSubscription

__all__ = ["LOOK_S", "MAX_LOOKERS", "MAX_LOOKS", "MAX_SHARE_POP", "REFRESH_S", "SHARE_LIFE_S", "ShareTable"]

MAX_SHARE_POP: Final = 8
"""Messages that a member takes at a time at most, so that the others get some too."""

SHARE_LIFE_S: Final = 3600
"""Seconds that the messages of a shared subscription wait after its last member went, or as long as the session of a
member lasts where that is longer."""

REFRESH_S: Final = 600.0
"""Seconds after which a shared subscription with members here is declared again."""

LOOK_S: Final = 5.0
"""Seconds after which members look for messages that came back without a word: those of a member whose proxy is gone,
and of a group that was reset."""

MAX_LOOKS: Final = 200
"""Shared subscriptions that are looked at in one turn at most."""

MAX_LOOKERS: Final = 8
"""Members of one shared subscription that look at a time at most; others the next time."""


@dataclass(slots=True)
class _Share:
    group: str
    topic_filter: str
    members: dict[SessionSubscription, None]
    """Those that looked last come last."""
    refreshed_s: float
    looked_s: float


@dataclass(slots=True)
class _Member:
    """One member, which takes messages of its shared subscription."""

    session: MqttSession
    subscription: SessionSubscription

    @property
    def room(self) -> int:
        return self.session.window.room

    def take(self, popped: PoppedMessage, taken: TakenMessage, broker: int) -> Taken:
        return self.session.take_share(popped, taken, self.subscription)

    def note_drained(self) -> None:
        """What was released before is known by its own identifiers."""


class ShareTable:
    """The shared subscriptions that have members here."""

    def __init__(self, services: MqttServices) -> None:
        self._services = services
        self._shares: dict[str, _Share] = {}

    def __len__(self) -> int:
        return len(self._shares)

    async def join(self, session: MqttSession, subscription: SessionSubscription, group: str) -> None:
        """Make a subscription one of the group's, which is made at its first use where brokers allow that.
        TOPIC_FILTER_INVALID where the group can be none, or is not there."""
        try:
            check_group_name(group)
            if is_tool_group(group) or group == SESSION_GROUP:
                raise NameRefused("ILLEGAL_GROUP", f"{group!r} is one of the system's own groups.")
            await self._services.backend.group(group)
        except NameRefused as error:
            raise PacketRefused(ReasonCode.TOPIC_FILTER_INVALID, error.message) from None
        services = self._services
        name = share_queue_name(group, subscription.topic_filter)
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = _Share(group, subscription.topic_filter, {}, 0.0, services.clock.monotonic_s())
        share.members[subscription] = None
        try:
            await self._declare(name, share)
            subscription.share = LightQueueReader(
                services.backend,
                services.clock,
                group,
                name,
                await services.routes.brokers(),
                max_pop=MAX_SHARE_POP,
                taker=_Member(session, subscription),
                holding=services.holding,
            )
        except BaseException:
            self._drop(name, subscription)
            raise
        session.has_shares = True

    async def leave(self, subscription: SessionSubscription) -> None:
        """End a membership; what the member has not acknowledged is for the others."""
        self.forget(subscription)
        if subscription.share is not None:
            await subscription.share.close()
            self.wake(subscription.share.name)

    def wake(self, name: str) -> None:
        """Have members of a shared subscription look for messages, if it has any here."""
        share = self._shares.get(name)
        if share is not None:
            share.looked_s = self._services.clock.monotonic_s()
            _look(share)

    def look(self) -> None:
        """Have members look where nobody did for a while."""
        now_s = self._services.clock.monotonic_s()
        due = (share for share in self._shares.values() if now_s - share.looked_s >= LOOK_S)
        for share in islice(due, MAX_LOOKS):
            share.looked_s = now_s
            _look(share)

    def forget(self, subscription: SessionSubscription) -> None:
        """The member's connection is gone."""
        if subscription.share is not None:
            self._drop(subscription.share.name, subscription)

    async def refresh(self) -> None:
        """Declare again what was not for a while. Raises what storing raises."""
        now_s = self._services.clock.monotonic_s()
        for name, share in list(self._shares.items()):
            if now_s - share.refreshed_s >= REFRESH_S:
                await self._declare(name, share)

    async def _declare(self, name: str, share: _Share) -> None:
        share.refreshed_s = self._services.clock.monotonic_s()
        life_s = max([SHARE_LIFE_S, *(one.session.expiry_s for one in share.members)])
        expires_ms = self._services.clock.now_ms() + round((life_s + 2 * REFRESH_S) * 1000)
        bindings = [(topic, share.topic_filter) for topic in self._services.rules.topics_for(share.topic_filter)]
        try:
            await self._services.routes.declare(name, LightQueueConfig("share", share.group, expires_ms), bindings)
        except MillstreamError:
            share.refreshed_s = 0.0
            raise

    def _drop(self, name: str, subscription: SessionSubscription) -> None:
        share = self._shares.get(name)
        if share is None:
            return
        share.members.pop(subscription, None)
        if not share.members:
            del self._shares[name]


def _look(share: _Share) -> None:
    for member in [*islice(share.members, MAX_LOOKERS)]:
        del share.members[member]
        share.members[member] = None
        if member.share is not None:
            member.share.wake()
