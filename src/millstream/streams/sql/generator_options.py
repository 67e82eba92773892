"""Options of tables whose rows are made up: nexmark's auctions, and rows by column."""

from __future__ import annotations

from millstream.streams.sql.options import Option, choice, count, duration, flag, size, text

__all__ = ["DATAGEN_OPTIONS", "NEXMARK_OPTIONS"]

_NUMBER = r"-?\d{1,18}(\.\d{1,18})?"
_RATE = "a number of events a second"
_SHARE = "a whole number"

NEXMARK_OPTIONS: tuple[Option, ...] = (
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
"""Those of the connector 'nexmark', as its own generator has them; the seed and the order of times are ours."""

DATAGEN_OPTIONS: tuple[Option, ...] = (
    count("rows-per-second", "Rows a second.", "a number of rows", default="10000"),
    count("number-of-rows", "Rows in all; default: without end.", "a number of rows", least=0),
    choice("fields.#.kind", "How a column's values are made.", "random", "sequence", default="random"),
    text("fields.#.min", "Smallest random value.", pattern=_NUMBER, wanted="a number"),
    text("fields.#.max", "Greatest random value.", pattern=_NUMBER, wanted="a number"),
    duration("fields.#.max-past", "How far a random time lies back at most.", "0 s"),
    count("fields.#.length", "Length of random texts, arrays and maps.", "a number", least=0, default="100"),
    flag("fields.#.var-len", "Whether texts are of any length up to that one."),
    text(
        "fields.#.null-rate",
        "Share of NULL.",
        pattern=r"0(\.\d+)?|1(\.0+)?",
        wanted="a number from 0 to 1",
        default="0",
    ),
    text("fields.#.start", "First value of a sequence.", pattern=_NUMBER, wanted="a number"),
    text("fields.#.end", "Last value of a sequence, with which the table ends.", pattern=_NUMBER, wanted="a number"),
)
"""Those of the connector 'datagen'; # is a column."""
