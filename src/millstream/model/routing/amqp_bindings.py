"""AMQP 0-9-1 bindings, matched by exchange, routing key and headers of a message.

A direct binding wants its own key, a fanout binding all, a topic binding keys that fit its pattern: words that `.`
divides, of which `*` stands for one and `#` for any number. A headers binding looks at the message's headers: with
`x-match` `all` each of its arguments must be there with that value, with `any` one of them; arguments whose names begin
with `x-` do not count but with `all-with-x` and `any-with-x`. An argument without a value asks for the name alone.
Sources: AMQP 0-9-1, section 3.1.3; RabbitMQ's headers exchange (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, Generic, TypeVar

from millstream.model.errors import NameRefused

__all__ = ["AMQP_KINDS", "MAX_HASHES", "MAX_KEY_BYTES", "AmqpBinding", "AmqpBindings", "fits", "matches_headers"]

AMQP_KINDS: Final = ("direct", "fanout", "topic", "headers")
"""The types of exchanges."""

MAX_KEY_BYTES: Final = 255
"""UTF-8 bytes of a routing or binding key at most: an AMQP short string."""

MAX_HASHES: Final = 8
"""`#` in one pattern at most: what a match costs grows with each."""

_ONE, _MANY = "*", "#"
_KEPT_PATTERNS: Final = 4096
_MATCH: Final = "x-match"
_MATCHES: Final = ("all", "any", "all-with-x", "any-with-x")

_Holder = TypeVar("_Holder")


@dataclass(frozen=True, slots=True)
class AmqpBinding:
    """What a queue wants of an exchange. `arguments` are those of a headers binding: name and text, None for no
    value."""

    kind: str
    exchange: str
    key: str = ""
    arguments: tuple[tuple[str, str | None], ...] = ()
    also: tuple[AmqpBinding, ...] = ()
    """What a message has to fit as well, where exchanges are bound to exchanges; their exchanges and `also` do not
    count. `AmqpBindings` leaves it to its callers (`fits`)."""

    def check(self) -> None:
        """Refuse what no binding can be: ILLEGAL_ROUTE."""
        wrong = None
        if self.kind not in AMQP_KINDS:
            wrong = f"its type is {self.kind[:40]!r}, and not one of {', '.join(AMQP_KINDS)}"
        elif len(self.key.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
            wrong = f"its key has more than {MAX_KEY_BYTES} bytes"
        elif self.kind == "topic" and self.key.split(".").count(_MANY) > MAX_HASHES:
            wrong = f"its key has more than {MAX_HASHES} words #"
        elif dict(self.arguments).get(_MATCH, "all") not in _MATCHES:
            wrong = f"x-match is none of {', '.join(_MATCHES)}"
        for each in self.also:
            each.check()
        if wrong is not None:
            raise NameRefused("ILLEGAL_ROUTE", f"A binding to the exchange {self.exchange[:80]!r} is refused: {wrong}.")


def matches_headers(arguments: Mapping[str, str | None], headers: Mapping[str, str]) -> bool:
    """Whether headers fit the arguments of a binding. Without arguments that count, `all` fits and `any` does not."""
    how = arguments.get(_MATCH) or "all"
    counts_x = how.endswith("-with-x")
    wanted = [
        (name, value) for name, value in arguments.items() if name != _MATCH and (counts_x or not name.startswith("x-"))
    ]
    found = (name in headers and (value is None or headers[name] == value) for name, value in wanted)
    return any(found) if how.startswith("any") else all(found)


class _Word(Generic[_Holder]):
    """One word of topic patterns: the words behind it, and the holders of patterns that end here."""

    __slots__ = ("behind", "ending")

    def __init__(self) -> None:
        self.behind: dict[str, _Word[_Holder]] = {}
        self.ending: dict[_Holder, None] = {}


class _TopicPatterns(Generic[_Holder]):
    """A trie of topic patterns."""

    def __init__(self) -> None:
        self._root: _Word[_Holder] = _Word()

    @property
    def is_blank(self) -> bool:
        """Whether there is no pattern."""
        return not (self._root.behind or self._root.ending)

    def add(self, pattern: str, holder: _Holder) -> None:
        """Let the holder have the pattern."""
        word = self._root
        for text in _words_of(pattern):
            following = word.behind.get(text)
            if following is None:
                following = word.behind[text] = _Word()
            word = following
        word.ending[holder] = None

    def remove(self, pattern: str, holder: _Holder) -> None:
        """Take the pattern from the holder, which has it."""
        texts, way = _words_of(pattern), [self._root]
        for text in texts:
            way.append(way[-1].behind[text])
        del way[-1].ending[holder]
        for number in range(len(way) - 1, 0, -1):
            if way[number].behind or way[number].ending:
                break
            del way[number - 1].behind[texts[number - 1]]

    def match(self, key: str, found: dict[_Holder, None]) -> None:
        """Add the holders whose patterns the key fits."""
        # The states are nodes of the trie; one behind `#` may stay where it is for each further word. Each node is
        # there once, so a key of many words costs no more than words times nodes.
        fitting = self._open([self._root])
        for text in _words_of(key):
            following: dict[_Word[_Holder], bool] = {}
            for word, is_many in fitting.items():
                if is_many:
                    following[word] = True
                for pattern in (text, _ONE):
                    behind = word.behind.get(pattern) if pattern != _MANY else None
                    if behind is not None:
                        following.setdefault(behind, False)
            fitting = self._open_all(following)
            if not fitting:
                return
        for word in fitting:
            found.update(word.ending)

    def _open(self, words: list[_Word[_Holder]]) -> dict[_Word[_Holder], bool]:
        return self._open_all(dict.fromkeys(words, False))

    def _open_all(self, words: dict[_Word[_Holder], bool]) -> dict[_Word[_Holder], bool]:
        """With the words that are reached by a `#` which stands for no word; those behind a `#` are marked."""
        waiting = [*words]
        while waiting:
            many = waiting.pop().behind.get(_MANY)
            if many is not None and not words.get(many, False):
                words[many] = True
                waiting.append(many)
        return words


def fits(binding: AmqpBinding, key: str, headers: Mapping[str, str]) -> bool:
    """Whether a message of its exchange fits a binding alone."""
    match binding.kind:
        case "direct":
            return binding.key == key
        case "fanout":
            return True
        case "topic":
            found: dict[bool, None] = {}
            _single_pattern(binding.key).match(key, found)
            return bool(found)
        case _:
            return matches_headers(dict(binding.arguments), headers)


@lru_cache(maxsize=_KEPT_PATTERNS)
def _single_pattern(key: str) -> _TopicPatterns[bool]:
    patterns: _TopicPatterns[bool] = _TopicPatterns()
    patterns.add(key, True)
    return patterns


@dataclass(slots=True)
class _Exchange(Generic[_Holder]):
    """The bindings of one exchange. A dict of holders counts each once."""

    direct: dict[str, dict[_Holder, None]] = field(default_factory=dict)
    fanout: dict[tuple[_Holder, AmqpBinding], None] = field(default_factory=dict)
    topic: _TopicPatterns[tuple[_Holder, AmqpBinding]] = field(default_factory=_TopicPatterns)
    headers: dict[tuple[_Holder, AmqpBinding], dict[str, str | None]] = field(default_factory=dict)

    @property
    def is_blank(self) -> bool:
        """Whether there is no binding."""
        return not (self.direct or self.fanout or self.headers) and self.topic.is_blank


class AmqpBindings(Generic[_Holder]):
    """Bindings by exchange, each with its holders. Adding and removing cost the words of a key; a match costs the words
    of the key times the patterns that fit it, and one look at each headers binding of the exchange."""

    def __init__(self) -> None:
        self._exchanges: dict[str, _Exchange[_Holder]] = {}
        self._held: set[tuple[_Holder, AmqpBinding]] = set()

    def __len__(self) -> int:
        """The pairs of binding and holder."""
        return len(self._held)

    def add(self, binding: AmqpBinding, holder: _Holder) -> bool:
        """Let the holder have a legal binding; False if it has it already."""
        binding = _without_idle_arguments(binding)
        held = holder, binding
        if held in self._held:
            return False
        self._held.add(held)
        exchange = self._exchanges.setdefault(binding.exchange, _Exchange())
        match binding.kind:
            case "direct":
                exchange.direct.setdefault(binding.key, {})[holder] = None
            case "fanout":
                exchange.fanout[held] = None
            case "topic":
                exchange.topic.add(binding.key, held)
            case _:
                exchange.headers[held] = dict(binding.arguments)
        return True

    def remove(self, binding: AmqpBinding, holder: _Holder) -> bool:
        """Take the binding from the holder; False if it does not have it."""
        binding = _without_idle_arguments(binding)
        held = holder, binding
        if held not in self._held:
            return False
        self._held.remove(held)
        exchange = self._exchanges[binding.exchange]
        match binding.kind:
            case "direct":
                _drop(exchange.direct, binding.key, holder)
            case "fanout":
                del exchange.fanout[held]
            case "topic":
                exchange.topic.remove(binding.key, held)
            case _:
                del exchange.headers[held]
        if exchange.is_blank:
            del self._exchanges[binding.exchange]
        return True

    def match(
        self, exchange: str, key: str, headers: Mapping[str, str], further: Sequence[str] = ()
    ) -> dict[_Holder, None]:
        """The holders of bindings of the exchange that a message fits by any of its keys, each once."""
        bound = self._exchanges.get(exchange)
        if bound is None:
            return {}
        found = dict(bound.direct.get(key, {}))
        for each in further:
            found.update(bound.direct.get(each, {}))
        for holder, _ in bound.fanout:
            found[holder] = None
        if not bound.topic.is_blank:
            fitting: dict[tuple[_Holder, AmqpBinding], None] = {}
            for each in (key, *further):
                bound.topic.match(each, fitting)
            for holder, _ in fitting:
                found[holder] = None
        for (holder, _), arguments in bound.headers.items():
            if holder not in found and matches_headers(arguments, headers):
                found[holder] = None
        return found


def _words_of(key: str) -> list[str]:
    """The words of a key or pattern; a blank one has none, so `*` does not fit it, as at RabbitMQ."""
    return key.split(".") if key else []


def _without_idle_arguments(binding: AmqpBinding) -> AmqpBinding:
    """Arguments count for headers bindings alone."""
    return binding if binding.kind == "headers" or not binding.arguments else replace(binding, arguments=())


def _drop(held: dict[str, dict[_Holder, None]], key: str, holder: _Holder) -> None:
    holders = held[key]
    del holders[holder]
    if not holders:
        del held[key]
