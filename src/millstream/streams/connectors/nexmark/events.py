"""Nexmark's events as Arrow columns: persons, auctions and bids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.connectors.nexmark.settings import NexmarkSettings, NexmarkTimes

__all__ = ["FIELDS", "Draws", "EventMaker"]


Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_STEP = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_MIXES = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)
_LETTERS = 26
_FIRST_LETTER = ord("a")


class Draws:
    """Draws for the events `numbers`. Each `purpose` is a sequence of its own. Mixed as in Steele's SplitMix64."""

    def __init__(self, seed: int, numbers: Integers) -> None:
        self._start = _mix(numbers.astype(np.uint64) + _steps(seed))

    def hashes(self, purpose: int) -> Hashes:
        """64 even bits each."""
        return _mix(self._start + _steps(purpose))

    def below(self, purpose: int, bound: int | Integers) -> Integers:
        """Whole numbers from 0 up to but without `bound`."""
        positive = (self.hashes(purpose) >> np.uint64(1)).astype(np.int64)
        return np.asarray(positive % np.maximum(bound, 1), dtype=np.int64)

    def fractions(self, purpose: int) -> npt.NDArray[np.float64]:
        """Numbers from 0 up to but without 1."""
        return (self.hashes(purpose) >> np.uint64(11)).astype(np.float64) / float(1 << 53)

    def letters(self, purpose: int, lengths: Integers) -> pa.Array:
        """Texts of small letters of those lengths."""
        longest = int(lengths.max(initial=0))
        blocks = -(-longest // 8)
        if blocks == 0:
            return pa.array([""] * len(lengths), pa.string())
        steps = np.arange(1, blocks + 1, dtype=np.uint64) * np.uint64(_STEP)
        several = _mix(self.hashes(purpose)[:, None] + steps[None, :])
        drawn = several.view(np.uint8).reshape(len(lengths), blocks * 8) % _LETTERS + _FIRST_LETTER
        kept = np.arange(blocks * 8)[None, :] < lengths[:, None]
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        texts = drawn[kept].astype(np.uint8)
        return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets.tobytes()), pa.py_buffer(texts.tobytes()))


def _steps(count: int) -> np.uint64:
    return np.uint64(count * _STEP & _MASK)


def _mix(values: Hashes) -> Hashes:
    with np.errstate(over="ignore"):
        for shift, factor in _MIXES:
            values = (values ^ (values >> shift)) * factor
        return values ^ (values >> _LAST_SHIFT)


FIELDS: Mapping[str, tuple[str, ...]] = {
    "event_type": (),
    "person": ("id", "name", "emailAddress", "creditCard", "city", "state", "dateTime", "extra"),
    "auction": (
        "id", "itemName", "description", "initialBid", "reserve", "dateTime", "expires", "seller", "category", "extra",
    ),
    "bid": ("auction", "bidder", "price", "channel", "url", "dateTime", "extra"),
}  # fmt: skip
"""The columns, and the fields of those that are rows."""

_FIRST_ID = 1000
_FIRST_CATEGORY = 10
_CATEGORIES = 5
_HOT_GROUP = 100
"""How many auctions, sellers or bidders one after the other share the one of them that is hot."""
_OPEN_AUCTIONS = 100
_ACTIVE_PERSONS = 1000
_SOON = 10
"""How many auctions or persons that are still to come a bid may name."""
_CHANNELS = 10_000

_FIRST_NAMES = pa.array("Ada Bea Carl Dora Emil Fay Gus Hana Ivo Jana Karl".split())
_LAST_NAMES = pa.array("Abel Berg Cole Dahl Esser Frey Gold Holm Ives".split())
_CITIES = pa.array(["Phoenix", "Los Angeles", "Oakland", "Boise", "Portland", "Bend", "Redmond", "Kent", "Casper"])
_STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_HOT_CHANNELS = pa.array(["Google", "Facebook", "Baidu", "Apple"])


class EventMaker:
    """Makes the events of any range of numbers."""

    def __init__(self, settings: NexmarkSettings, base_time_ms: int) -> None:
        self._settings = settings
        self._base_us = base_time_ms * 1000
        self._times = NexmarkTimes(settings)

    def columns(self, start: int, end: int, wanted: Mapping[str, Sequence[str]]) -> dict[str, pa.Array]:
        """The events from number `start` to before `end`: the wanted columns, and of rows the wanted fields."""
        numbers = np.arange(start, end, dtype=np.int64)
        turn = numbers % self._settings.shares
        persons, auctions = self._settings.person_share, self._settings.auction_share
        kinds = np.where(turn < persons, 0, np.where(turn < persons + auctions, 1, 2))
        makers = {"person": (0, self._persons), "auction": (1, self._auctions), "bid": (2, self._bids)}
        made: dict[str, pa.Array] = {}
        for name, fields in wanted.items():
            if name == "event_type":
                made[name] = pa.array(kinds.astype(np.int32))
                continue
            kind, make = makers[name]
            chosen = kinds == kind
            values = make(numbers[chosen], frozenset(fields))
            rows = pa.StructArray.from_arrays([values[field] for field in fields], list(fields))
            places = np.cumsum(chosen) - 1
            made[name] = rows.take(pa.array(places, mask=~chosen))
        return made

    def _last_persons(self, numbers: Integers) -> Integers:
        """The newest person's place in the order of persons, the event itself included."""
        rounds, turn = np.divmod(numbers, self._settings.shares)
        share = self._settings.person_share
        return np.asarray(np.maximum(rounds * share + np.minimum(turn, share - 1), 0), dtype=np.int64)

    def _last_auctions(self, numbers: Integers) -> Integers:
        rounds, turn = np.divmod(numbers, self._settings.shares)
        share = self._settings.auction_share
        since = np.clip(turn - self._settings.person_share, -1, share - 1)
        return np.asarray(np.maximum(rounds * share + since, 0), dtype=np.int64)

    def _moments_us(self, numbers: Integers, draws: Draws) -> Integers:
        late_ms = draws.below(1, self._settings.disorder_ms + 1)
        return self._base_us + self._times.turns_us(numbers) // 1000 * 1000 - late_ms * 1000

    def _persons(self, numbers: Integers, wanted: frozenset[str]) -> dict[str, pa.Array]:
        draws = Draws(self._settings.seed, numbers)
        first, last = (names.take(_indices(draws, 10 + at, len(names))) for at, names in enumerate(_NAMES))
        six = np.full(len(numbers), 6)
        digits = [pa.array(draws.below(20 + part, 9000) + 1000).cast(pa.string()) for part in range(4)]
        made = {
            "id": pa.array(_FIRST_ID + self._last_persons(numbers)),
            "name": _join_parts(" ", first, last),
            "emailAddress": _join_parts(
                "@", draws.letters(12, six), _join_parts("", draws.letters(13, six), ".example")
            ),
            "creditCard": _join_parts(" ", *digits),
            "city": _CITIES.take(_indices(draws, 14, len(_CITIES))),
            "state": _STATES.take(_indices(draws, 15, len(_STATES))),
            "dateTime": _timestamps(self._moments_us(numbers, draws)),
        }
        if "extra" in wanted:
            made["extra"] = _extra(draws, self._settings.person_bytes, made)
        return made

    def _auctions(self, numbers: Integers, wanted: frozenset[str]) -> dict[str, pa.Array]:
        draws = Draws(self._settings.seed, numbers)
        newest = self._last_persons(numbers)
        usual = newest - draws.below(31, np.minimum(newest + 1, _ACTIVE_PERSONS))
        is_hot = draws.below(30, self._settings.hot_sellers) > 0
        prices = _prices(draws, 32)
        moments_us = self._moments_us(numbers, draws)
        # An auction lasts about as long as it takes until as many others as are open at a time have begun.
        span = _OPEN_AUCTIONS * self._settings.shares // max(1, self._settings.auction_share)
        horizon_ms = (self._times.turns_us(numbers + span) - self._times.turns_us(numbers)) // 1000
        lasting_ms = 1 + draws.below(34, 2 * horizon_ms)
        made = {
            "id": pa.array(_FIRST_ID + self._last_auctions(numbers)),
            "itemName": draws.letters(35, 3 + draws.below(36, 18)),
            "description": draws.letters(37, 3 + draws.below(38, 98)),
            "initialBid": pa.array(prices),
            "reserve": pa.array(prices + _prices(draws, 33)),
            "dateTime": _timestamps(moments_us),
            "expires": _timestamps(moments_us + lasting_ms * 1000),
            "seller": pa.array(_FIRST_ID + np.where(is_hot, newest // _HOT_GROUP * _HOT_GROUP, usual)),
            "category": pa.array(_FIRST_CATEGORY + draws.below(39, _CATEGORIES)),
        }
        if "extra" in wanted:
            made["extra"] = _extra(draws, self._settings.auction_bytes, made)
        return made

    def _bids(self, numbers: Integers, wanted: frozenset[str]) -> dict[str, pa.Array]:
        draws = Draws(self._settings.seed, numbers)
        newest, person = self._last_auctions(numbers), self._last_persons(numbers)
        open_ = np.minimum(newest + 1, _OPEN_AUCTIONS)
        auction = newest + _SOON - draws.below(51, open_ + _SOON)
        auction = np.where(draws.below(50, self._settings.hot_auctions) > 0, newest // _HOT_GROUP * _HOT_GROUP, auction)
        active = np.minimum(person + 1, _ACTIVE_PERSONS)
        bidder = person + _SOON - draws.below(53, active + _SOON)
        hot_bidder = person // _HOT_GROUP * _HOT_GROUP + 1
        bidder = np.where(draws.below(52, self._settings.hot_bidders) > 0, hot_bidder, bidder)
        made = {
            "auction": pa.array(_FIRST_ID + auction),
            "bidder": pa.array(_FIRST_ID + bidder),
            "price": pa.array(_prices(draws, 54)),
            "dateTime": _timestamps(self._moments_us(numbers, draws)),
        }
        if wanted & {"channel", "url", "extra"}:
            made.update(_channels(draws, len(numbers)))
        if "extra" in wanted:
            made["extra"] = _extra(draws, self._settings.bid_bytes, made)
        return made


_NAMES = (_FIRST_NAMES, _LAST_NAMES)


def _channels(draws: Draws, count: int) -> dict[str, pa.Array]:
    """Half of the bids come by one of four channels, whose addresses tell no channel."""
    number = pa.array(draws.below(57, _CHANNELS)).cast(pa.string())
    is_hot = pa.array(draws.below(55, 2) == 0)
    hot = _HOT_CHANNELS.take(_indices(draws, 56, len(_HOT_CHANNELS)))
    five = np.full(count, 5)
    path = _join_parts("/", "https://auctions.example", *(draws.letters(58 + part, five) for part in range(3)))
    plain = _join_parts("/", path, "item.htm?query=1")
    with_channel = _join_parts("&channel_id=", plain, number)
    has_number = pa.array(draws.below(61, 10) > 0)
    return {
        "channel": pc.if_else(is_hot, hot, _join_parts("-", "channel", number)),
        "url": pc.if_else(pc.and_(pc.invert(is_hot), has_number), with_channel, plain),
    }


def _prices(draws: Draws, purpose: int) -> Integers:
    """From 100 to 100,000,000, evenly over the powers of ten."""
    return np.round(np.power(10.0, draws.fractions(purpose) * 6.0) * 100.0).astype(np.int64)


def _extra(draws: Draws, size: int, made: Mapping[str, pa.Array]) -> pa.Array:
    """Letters that bring an event to about `size` bytes, a fifth more or less; empty where it is large enough."""
    count = len(next(iter(made.values())))
    used = np.zeros(count, dtype=np.int64)
    for values in made.values():
        lengths = pc.binary_length(values).to_numpy(zero_copy_only=False) if pa.types.is_string(values.type) else 8
        used = used + lengths
    missing = np.maximum(size - used, 0)
    spread = missing // 5
    return draws.letters(62, missing - spread + draws.below(63, 2 * spread + 1))


def _indices(draws: Draws, purpose: int, bound: int) -> pa.Array:
    return pa.array(draws.below(purpose, bound))


def _join_parts(separator: str, *parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, separator)


def _timestamps(moments_us: Integers) -> pa.Array:
    return pa.array(moments_us).cast(pa.timestamp("us", tz="UTC"))
