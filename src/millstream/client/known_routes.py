"""What a client remembers of routes, so that it goes on while no nameserver answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.model.backoff import Backoff
from millstream.protocol.remoting.bodies import TopicRouteData

__all__ = ["DENIAL_GRACE_S", "ROUTE_LIFETIME_S", "ROUTE_RETRY_S", "KnownRoutes"]

ROUTE_LIFETIME_S: Final = 30.0
"""Seconds that a route is used before the nameserver is asked again."""

ROUTE_RETRY_S: Final = 2.0
"""Seconds that an old route is used before the nameservers, which did not answer, are asked again; twice as long each
time, up to `ROUTE_LIFETIME_S`: one that hangs holds up whoever asks it."""

DENIAL_GRACE_S: Final = 60.0
"""Seconds that a route is used although nameservers no longer know the topic: one that was just started knows none."""

_BACKOFF: Final = Backoff(ROUTE_RETRY_S, ROUTE_LIFETIME_S)


@dataclass(slots=True)
class _Known:
    route: TopicRouteData
    believed_until_s: float
    denied_s: float | None = None
    unanswered: int = 0
    """How often no nameserver answered since the route was heard."""


class KnownRoutes:
    """The last route of each topic. Times are seconds of a clock that never goes back, the caller's own."""

    def __init__(self, backoff: Backoff = _BACKOFF) -> None:
        self._backoff = backoff
        self._routes: dict[str, _Known] = {}

    def fresh(self, topic: str, now_s: float) -> TopicRouteData | None:
        """The route, where nobody needs to be asked."""
        known = self._routes.get(topic)
        return known.route if known is not None and now_s < known.believed_until_s else None

    def learn(self, topic: str, route: TopicRouteData, now_s: float) -> None:
        """A nameserver told the route."""
        self._routes[topic] = _Known(route, now_s + ROUTE_LIFETIME_S)

    def note_no_answer(self, topic: str, now_s: float) -> TopicRouteData | None:
        """No nameserver answered: the last route, for a while; None where there was none."""
        known = self._routes.get(topic)
        if known is None:
            return None
        known.believed_until_s = now_s + self._backoff.wait_s(known.unanswered)
        known.unanswered += 1
        return known.route

    def note_denial(self, topic: str, now_s: float) -> TopicRouteData | None:
        """A nameserver does not know the topic: the last route for `DENIAL_GRACE_S`, then None."""
        known = self._routes.get(topic)
        if known is None:
            return None
        if known.denied_s is None:
            known.denied_s = now_s
        if now_s - known.denied_s >= DENIAL_GRACE_S:
            del self._routes[topic]
            return None
        return self.note_no_answer(topic, now_s)

    def doubt(self, topic: str) -> None:
        """The route led to somebody who does not answer: it is asked for before its next use."""
        known = self._routes.get(topic)
        if known is not None:
            known.believed_until_s = 0.0

    def forget(self, topic: str) -> None:
        """The topic is not there, or not as it was: what was known of it does not help."""
        self._routes.pop(topic, None)
