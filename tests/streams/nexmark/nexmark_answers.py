"""What each query answers over a list of events, by plain loops: written from the questions, not from the engine."""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any

from nexmark_events import Event, auctions, bids, persons

__all__ = ["ANSWERS", "side_input"]

Row = tuple[Any, ...]
Answer = Callable[[list[Event]], Iterable[Row]]

TEN = datetime.timedelta(seconds=10)
TWO = datetime.timedelta(seconds=2)
EPOCH = datetime.datetime(1970, 1, 1)


def start_of(moment: datetime.datetime, size: datetime.timedelta) -> datetime.datetime:
    return moment - (moment - EPOCH) % size


def day_of(moment: datetime.datetime) -> str:
    return f"{moment:%Y-%m-%d}"


def wide(bid: Event) -> Row:
    return (bid["auction"], bid["bidder"], bid["price"], bid["channel"], bid["url"], bid["dateTime"], bid["extra"])


def narrow(bid: Event) -> Row:
    return (bid["auction"], bid["bidder"], bid["price"], bid["dateTime"], bid["extra"])


def of_auction(auction: Event) -> Row:
    names = (
        "id",
        "itemName",
        "description",
        "initialBid",
        "reserve",
        "dateTime",
        "expires",
        "seller",
        "category",
        "extra",
    )
    return tuple(auction[name] for name in names)


def in_dollars(price: int) -> Decimal:
    return Decimal("0.908") * price


def valid_bids(events: list[Event]) -> Iterator[tuple[Event, Event]]:
    """Auctions and the bids on them while they were open."""
    for auction in auctions(events):
        for bid in bids(events):
            if bid["auction"] == auction["id"] and auction["dateTime"] <= bid["dateTime"] <= auction["expires"]:
                yield auction, bid


def winners(events: list[Event]) -> list[tuple[Event, Event]]:
    """Each auction's highest bid, the earliest of equal ones."""
    best: dict[int, tuple[Event, Event]] = {}
    for auction, bid in valid_bids(events):
        known = best.get(auction["id"])
        if known is None or (-bid["price"], bid["dateTime"]) < (-known[1]["price"], known[1]["dateTime"]):
            best[auction["id"]] = (auction, bid)
    return list(best.values())


def q0(events: list[Event]) -> Iterable[Row]:
    return map(narrow, bids(events))


def q1(events: list[Event]) -> Iterable[Row]:
    return ((b["auction"], b["bidder"], in_dollars(b["price"]), b["dateTime"], b["extra"]) for b in bids(events))


def q2(events: list[Event]) -> Iterable[Row]:
    return ((b["auction"], b["price"]) for b in bids(events) if b["auction"] % 123 == 0)


def q3(events: list[Event]) -> Iterable[Row]:
    for person in persons(events):
        for auction in auctions(events):
            if (
                auction["seller"] == person["id"]
                and auction["category"] == 10
                and person["state"] in ("OR", "ID", "CA")
            ):
                yield person["name"], person["city"], person["state"], auction["id"]


def q4(events: list[Event]) -> Iterable[Row]:
    prices: dict[int, list[int]] = defaultdict(list)
    for auction, bid in winners(events):
        prices[auction["category"]].append(bid["price"])
    return ((category, sum(found) // len(found)) for category, found in prices.items())


def q5(events: list[Event]) -> Iterable[Row]:
    counts: dict[datetime.datetime, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for bid in bids(events):
        start = start_of(bid["dateTime"], TWO)
        while start + TEN > bid["dateTime"]:
            counts[start][bid["auction"]] += 1
            start -= TWO
    for by_auction in counts.values():
        most = max(by_auction.values())
        yield from ((auction, count) for auction, count in by_auction.items() if count == most)


def q6(events: list[Event]) -> Iterable[Row]:
    sold: dict[int, list[tuple[datetime.datetime, int]]] = defaultdict(list)
    for auction, bid in winners(events):
        sold[auction["seller"]].append((bid["dateTime"], bid["price"]))
    for seller, found in sold.items():
        prices = [price for _, price in sorted(found)]
        for place in range(len(prices)):
            last = prices[max(0, place - 10) : place + 1]
            yield str(seller), sum(last) // len(last)


def q7(events: list[Event]) -> Iterable[Row]:
    highest: dict[datetime.datetime, int] = defaultdict(int)
    for bid in bids(events):
        end = start_of(bid["dateTime"], TEN) + TEN
        highest[end] = max(highest[end], bid["price"])
    for end, price in highest.items():
        won = [b for b in bids(events) if b["price"] == price and end - TEN <= b["dateTime"] <= end]
        yield from ((b["auction"], b["price"], b["bidder"], b["dateTime"], b["extra"]) for b in won)


def q8(events: list[Event]) -> Iterable[Row]:
    selling = {(auction["seller"], start_of(auction["dateTime"], TEN)) for auction in auctions(events)}
    registered = {(p["id"], p["name"], start_of(p["dateTime"], TEN)) for p in persons(events)}
    return (row for row in registered if (row[0], row[2]) in selling)


def q9(events: list[Event]) -> Iterable[Row]:
    return ((*of_auction(auction), *narrow(bid)) for auction, bid in winners(events))


def q10(events: list[Event]) -> Iterable[Row]:
    return ((*narrow(b), day_of(b["dateTime"]), f"{b['dateTime']:%H:%M}") for b in bids(events))


def q11(events: list[Event]) -> Iterable[Row]:
    by_bidder: dict[int, list[datetime.datetime]] = defaultdict(list)
    for bid in bids(events):
        by_bidder[bid["bidder"]].append(bid["dateTime"])
    for bidder, moments in by_bidder.items():
        session: list[datetime.datetime] = []
        for moment in sorted(moments):
            if session and moment > session[-1] + TEN:
                yield bidder, len(session), session[0], session[-1] + TEN
                session = []
            session.append(moment)
        yield bidder, len(session), session[0], session[-1] + TEN


def q12(events: list[Event]) -> Iterable[Row]:
    """Without the windows, which depend on the clock: how often each one bids in all."""
    counts: dict[int, int] = defaultdict(int)
    for bid in bids(events):
        counts[bid["bidder"]] += 1
    return counts.items()


def side_input() -> dict[int, str]:
    """The words of the file that query 13 looks into, for two of three auctions."""
    return {key: f"word {key}" for key in range(10_000) if key % 3}


def q13(events: list[Event]) -> Iterable[Row]:
    words = side_input()
    for b in bids(events):
        if b["auction"] % 10_000 in words:
            yield b["auction"], b["bidder"], b["price"], b["dateTime"], words[b["auction"] % 10_000]


def q14(events: list[Event]) -> Iterable[Row]:
    for b in bids(events):
        price, hour = in_dollars(b["price"]), b["dateTime"].hour
        if 1_000_000 < price < 50_000_000:
            kind = "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
            yield b["auction"], b["bidder"], price, kind, b["dateTime"], b["extra"], b["extra"].count("c")


def ranked(found: list[Event], value: Callable[[list[Event]], int]) -> list[int]:
    """Of all bids, and of the low, the middle and the high ones."""
    low = [bid for bid in found if bid["price"] < 10_000]
    middle = [bid for bid in found if 10_000 <= bid["price"] < 1_000_000]
    high = [bid for bid in found if bid["price"] >= 1_000_000]
    return [value(some) for some in (found, low, middle, high)]


def statistics(found: list[Event]) -> list[int]:
    bidders = ranked(found, lambda some: len({bid["bidder"] for bid in some}))
    of_auctions = ranked(found, lambda some: len({bid["auction"] for bid in some}))
    return [*ranked(found, len), *bidders, *of_auctions]


def grouped(found: list[Event], key: Callable[[Event], Any]) -> Iterable[tuple[Any, list[Event]]]:
    groups: dict[Any, list[Event]] = defaultdict(list)
    for bid in found:
        groups[key(bid)].append(bid)
    return groups.items()


def q15(events: list[Event]) -> Iterable[Row]:
    return ((day, *statistics(some)) for day, some in grouped(bids(events), lambda b: day_of(b["dateTime"])))


def q16(events: list[Event]) -> Iterable[Row]:
    groups = grouped(bids(events), lambda b: (b["channel"], day_of(b["dateTime"])))
    return ((*key, max(f"{b['dateTime']:%H:%M}" for b in some), *statistics(some)) for key, some in groups)


def q17(events: list[Event]) -> Iterable[Row]:
    for key, some in grouped(bids(events), lambda b: (b["auction"], day_of(b["dateTime"]))):
        prices = [b["price"] for b in some]
        total = sum(prices)
        yield (*key, *ranked(some, len), min(prices), max(prices), total // len(prices), total)


def q18(events: list[Event]) -> Iterable[Row]:
    """Of bids of one moment the one that came last."""
    for _, some in grouped(bids(events), lambda b: (b["bidder"], b["auction"])):
        last = max(range(len(some)), key=lambda place: (some[place]["dateTime"], place))
        yield wide(some[last])


def q19(events: list[Event]) -> Iterable[Row]:
    """Of equal prices the one that came first."""
    for _, some in grouped(bids(events), lambda b: b["auction"]):
        best = sorted(some, key=lambda b: -b["price"])[:10]
        yield from ((*wide(bid), place) for place, bid in enumerate(best, 1))


def q20(events: list[Event]) -> Iterable[Row]:
    by_id = {auction["id"]: auction for auction in auctions(events)}
    for b in bids(events):
        auction = by_id.get(b["auction"])
        if auction is not None and auction["category"] == 10:
            yield (*wide(b), *of_auction(auction)[1:])


def q21(events: list[Event]) -> Iterable[Row]:
    numbers = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    for b in bids(events):
        told = re.search(r"(&|^)channel_id=([^&]*)", b["url"])
        number = numbers.get(b["channel"].lower(), told and told[2])
        if number is not None:
            yield b["auction"], b["bidder"], b["price"], b["channel"], number


def q22(events: list[Event]) -> Iterable[Row]:
    for b in bids(events):
        parts = b["url"].split("/")
        yield b["auction"], b["bidder"], b["price"], b["channel"], parts[3], parts[4], parts[5]


def q23(events: list[Event]) -> Iterable[Row]:
    by_id = {person["id"]: person for person in persons(events)}
    by_seller = dict(grouped(auctions(events), lambda auction: auction["seller"]))
    names = ("id", "name", "emailAddress", "creditCard", "city", "state", "extra")
    for b in bids(events):
        person = by_id.get(b["bidder"])
        if person is None:
            continue
        for auction in by_seller.get(b["bidder"], ()):
            bid = (b["bidder"], b["price"], b["channel"], b["url"], b["extra"])
            yield (*bid, *(person[name] for name in names), *of_auction(auction)[1:])


def runs(events: list[Event]) -> Iterator[tuple[Row, list[Event]]]:
    """The bids of each bidder on each auction in the order of their times."""
    for key, some in grouped(bids(events), lambda b: (b["auction"], b["bidder"])):
        yield key, sorted(some, key=lambda b: b["dateTime"])


def cep_q0(events: list[Event]) -> Iterable[Row]:
    """A rise is above the price before the lowest: LAST(x, 1) is the one before the last."""
    for key, some in runs(events):
        prices, start = [b["price"] for b in some], 0
        while start < len(some):
            bottom = start
            while bottom + 1 < len(some) and prices[bottom + 1] < prices[bottom]:
                bottom += 1
            rise = bottom + 1
            if bottom - start >= 2 and rise < len(some) and prices[rise] > prices[bottom - 1]:
                yield (*key, *(some[place]["dateTime"] for place in (start, bottom, rise)))
                start = rise
            else:
                start += 1


def low_runs(events: list[Event], *, overlap: bool) -> Iterable[Row]:
    for key, some in runs(events):
        prices, start = [b["price"] for b in some], 0
        while start < len(some):
            end = start
            while end < len(some) and sum(prices[start : end + 1]) < 10_000 * (end + 1 - start):
                end += 1
            if end == len(some):
                # No row comes any more, so the last one of the run stands for what has to be behind it.
                end -= 1
            if end > start:
                mean = sum(prices[start:end]) // (end - start)
                yield (*key, some[start]["dateTime"], some[end - 1]["dateTime"], mean)
            start = end + 1 if end > start and not overlap else start + 1


def cep_q1(events: list[Event]) -> Iterable[Row]:
    return low_runs(events, overlap=False)


def cep_q2(events: list[Event]) -> Iterable[Row]:
    return low_runs(events, overlap=True)


def cep_q3(events: list[Event]) -> Iterable[Row]:
    for key, some in runs(events):
        start = 0
        while start < len(some):
            first, place = some[start], start + 1
            while place < len(some) and some[place]["price"] > first["price"] - 50:
                place += 1
            ends = place < len(some) and some[place]["price"] < first["price"] - 50
            if ends and some[place]["dateTime"] - first["dateTime"] < datetime.timedelta(seconds=5):
                yield (*key, some[place]["dateTime"], first["price"] - some[place]["price"])
                start = place + 1
            else:
                start += 1


ANSWERS: dict[str, Answer] = {
    **{f"q{number}": globals()[f"q{number}"] for number in range(24)},
    **{f"cep/q{number}": globals()[f"cep_q{number}"] for number in range(4)},
}
"""The answers by the query's name. That of q12 leaves out the windows."""
