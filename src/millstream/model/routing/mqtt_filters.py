"""MQTT topic filters, matched by the topic name of a message.

A filter is levels that `/` divides. `+` stands for one level, `#` as the last level for any number of them, the level
before it included. Neither stands for a first level that begins with `$`. Source: MQTT 5.0, section 4.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from millstream.model.errors import NameRefused

__all__ = ["KEPT_HOLDERS", "KEPT_NAMES", "MAX_FILTER_BYTES", "MAX_LEVELS", "MqttFilters", "check_mqtt_filter"]

MAX_FILTER_BYTES: Final = 65_535
"""UTF-8 bytes of a filter or a name at most: MQTT's own limit."""

MAX_LEVELS: Final = 200
"""Levels of a filter at most. The specification has no limit; a filter of nothing but `/` would be 65,536 levels."""

KEPT_NAMES: Final = 4096
"""Names whose holders are remembered until a filter comes or goes: the same ones are published to again and again."""

KEPT_HOLDERS: Final = 16
"""Holders of a name at most that is remembered so."""

_KEPT_NAME_CHARACTERS: Final = 256

_ONE, _REST = "+", "#"

_Holder = TypeVar("_Holder")


def check_mqtt_filter(text: str) -> None:
    """Refuse text that is no topic filter: ILLEGAL_ROUTE."""
    levels = text.split("/")
    wrong = None
    if not text or "\0" in text or len(text.encode("utf-8", "surrogatepass")) > MAX_FILTER_BYTES:
        wrong = f"it has to be 1 to {MAX_FILTER_BYTES} bytes without U+0000"
    elif len(levels) > MAX_LEVELS:
        wrong = f"it has {len(levels)} levels; {MAX_LEVELS} are allowed"
    elif any(_ONE in level and level != _ONE for level in levels):
        wrong = "+ has to be a level of its own"
    elif any(_REST in level and (level != _REST or number < len(levels) - 1) for number, level in enumerate(levels)):
        wrong = "# has to be the last level, of its own"
    if wrong is not None:
        raise NameRefused("ILLEGAL_ROUTE", f"{text[:200]!r} is no MQTT topic filter: {wrong}.")


_Holders = dict[_Holder, None] | tuple[()] | tuple[_Holder]
"""None and one are tuples: most filters of clients have one holder, and a dict of one takes 180 bytes more."""


class _Node(Generic[_Holder]):
    """One level of the trie: the levels below it, the holders of filters that end here or with `#` below here."""

    __slots__ = ("below", "ending", "rest")

    def __init__(self) -> None:
        # None as long as there are none: most nodes have one of the three.
        self.below: dict[str, _Node[_Holder]] | None = None
        self.ending: _Holders[_Holder] = ()
        self.rest: _Holders[_Holder] = ()

    @property
    def is_blank(self) -> bool:
        """Whether nothing needs the node."""
        return not (self.below or self.ending or self.rest)


class MqttFilters(Generic[_Holder]):
    """A trie of filters, each with its holders, any hashable value. Adding and removing cost the filter's levels,
    matching the levels of the name times the branches that fit it."""

    def __init__(self) -> None:
        self._root: _Node[_Holder] = _Node()
        self._count = 0
        self._known: dict[str, dict[_Holder, None]] = {}

    def __len__(self) -> int:
        """The pairs of filter and holder."""
        return self._count

    def add(self, text: str, holder: _Holder) -> bool:
        """Let the holder have a legal filter; False if it has it already."""
        node = self._root
        levels = text.split("/")
        is_rest = levels[-1] == _REST
        for level in levels[:-1] if is_rest else levels:
            if node.below is None:
                node.below = {}
            following = node.below.get(level)
            if following is None:
                following = node.below[level] = _Node()
            node = following
        if is_rest:
            if holder in node.rest:
                return False
            node.rest = _with(node.rest, holder)
        else:
            if holder in node.ending:
                return False
            node.ending = _with(node.ending, holder)
        self._count += 1
        self._known.clear()
        return True

    def remove(self, text: str, holder: _Holder) -> bool:
        """Take the filter from the holder; False if it does not have it."""
        levels = text.split("/")
        is_rest = levels[-1] == _REST
        way = [self._root]
        for level in levels[:-1] if is_rest else levels:
            below = way[-1].below
            following = None if below is None else below.get(level)
            if following is None:
                return False
            way.append(following)
        last = way[-1]
        if is_rest:
            if holder not in last.rest:
                return False
            last.rest = _without(last.rest, holder)
        else:
            if holder not in last.ending:
                return False
            last.ending = _without(last.ending, holder)
        self._count -= 1
        self._known.clear()
        for number in range(len(way) - 1, 0, -1):
            above = way[number - 1].below
            if above is None or not way[number].is_blank:
                break
            del above[levels[number - 1]]
        return True

    def match(self, name: str) -> Mapping[_Holder, None]:
        """The holders of filters that the name fits, each once."""
        known = self._known.get(name)
        if known is not None:
            return known
        found = self._match(name)
        if len(found) <= KEPT_HOLDERS and len(name) <= _KEPT_NAME_CHARACTERS:
            if len(self._known) >= KEPT_NAMES:
                self._known.clear()
            self._known[name] = found
        return found

    def _match(self, name: str) -> dict[_Holder, None]:
        found: dict[_Holder, None] = {}
        levels = name.split("/")
        fitting = [self._root]
        # `+` and `#` as first levels do not stand for one that begins with `$`.
        is_special = name.startswith("$")
        for number, level in enumerate(levels):
            following = []
            for node in fitting:
                if node.rest and not (is_special and number == 0):
                    _add_all(found, node.rest)
                if node.below is None:
                    continue
                exact = node.below.get(level)
                if exact is not None:
                    following.append(exact)
                one = None if is_special and number == 0 else node.below.get(_ONE)
                if one is not None:
                    following.append(one)
            if not following:
                return found
            fitting = following
        for node in fitting:
            if node.ending:
                _add_all(found, node.ending)
            # `a/#` has the name `a` as well.
            if node.rest:
                _add_all(found, node.rest)
        return found


def _with(holders: _Holders[_Holder], holder: _Holder) -> _Holders[_Holder]:
    """The holders and one more."""
    if not holders:
        return (holder,)
    if isinstance(holders, tuple):
        holders = dict.fromkeys(holders)
    holders[holder] = None
    return holders


def _without(holders: _Holders[_Holder], holder: _Holder) -> _Holders[_Holder]:
    """The holders but for one that is there."""
    if isinstance(holders, tuple):
        return ()
    del holders[holder]
    return holders


def _add_all(found: dict[_Holder, None], holders: _Holders[_Holder]) -> None:
    if isinstance(holders, tuple):
        for holder in holders:
            found[holder] = None
    else:
        found.update(holders)
