"""The connector `nexmark`: generated events of an auction house."""

from __future__ import annotations

from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.nexmark.settings import is_finite
from millstream.streams.connectors.options import Option, choice, count, duration, flag, size, text

__all__ = ["NEXMARK"]

_RATE = "a number of events a second"
_SHARE = "a whole number"

_OPTIONS: tuple[Option, ...] = (
    count("first-event.rate", "Events a second at the start.", _RATE, default="10000"),
    count("next-event.rate", "Events a second, which the rate comes to.", _RATE, default="10000"),
    count("events.num", "Events in all; 0 never ends.", "a number of events", least=0, default="0"),
    flag("rate.limited", "Whether events come at that rate; else as fast as they are read, with times as at the rate."),
    choice("rate.shape", "How the rate changes.", "SQUARE", "SINE", default="SQUARE"),
    duration("rate.period", "How long a change of the rate takes.", "600 s"),
    count("person.proportion", "Share of persons.", _SHARE, least=0, default="1"),
    count("auction.proportion", "Share of auctions.", _SHARE, least=0, default="3"),
    count("bid.proportion", "Share of bids.", _SHARE, least=0, default="46"),
    size("person.avg-size", "Size of a person.", "200 b"),
    size("auction.avg-size", "Size of an auction.", "500 b"),
    size("bid.avg-size", "Size of a bid.", "100 b"),
    count("bid.hot-ratio.auctions", "One in so many bids is not on a hot auction.", _SHARE, default="2"),
    count("bid.hot-ratio.bidders", "One in so many bids is not by a hot bidder.", _SHARE, default="4"),
    count("auction.hot-ratio.sellers", "One in so many auctions is not by a hot seller.", _SHARE, default="4"),
    duration("out-of-order.max-delay", "How far an event's time lies before its turn at most.", "0 s"),
    count("seed", "Equal seeds make equal events.", "a number", least=0, default="1"),
    count("base-time", "Event time of the first event.", "milliseconds", least=0),
    flag("keep-alive", "Whether a job goes on without events behind the last one; else it ends there."),
    flag(
        "max-emit-speed",
        "Whether events come as fast as they are read; followed where 'rate.limited' says else.",
        "true",
    ),
    text(
        "stop-at",
        "How many events there are before all of 'events.num'; -1 for no such stop.",
        pattern=r"-1|0*[1-9]\d{0,14}",
        wanted="a number of events, or -1",
        default="-1",
    ),
)
"""As nexmark's own generator has them; the seed and the order of times are ours."""

NEXMARK = Connector(
    "nexmark", _OPTIONS, reads=True, source="millstream.streams.connectors.nexmark.source:NexmarkSource", ends=is_finite
)
