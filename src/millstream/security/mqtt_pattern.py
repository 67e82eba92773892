"""MQTT topic patterns in policies: topic filters with placeholders for user and client.

`factory/+/line/#` is a filter as in MQTT 5.0, chapter 4.7: `+` is one level, `#` all levels from there on and the level
above, and a filter that begins with one of them covers no topic that begins with `$`. `${clientid}` and `${username}`,
alone or within a level, stand for the client id and the user name; what they stand for is plain text and never a
wildcard.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Final

from millstream.model.errors import AccessRefused

__all__ = ["MAX_MQTT_PATTERN_CHARACTERS", "MqttClient", "MqttPattern"]

MAX_MQTT_PATTERN_CHARACTERS: Final = 1024
"""Characters of a pattern of MQTT topics at most, as of a topic."""

_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
_ONE, _REST = "+", "#"


class _Level(IntEnum):
    """What a level of a pattern is, the most specific first; the value stands in a pattern's rank."""

    TEXT = 0
    PLACEHOLDER = 1
    ONE = 2
    END = 3
    REST = 4


@dataclass(frozen=True, slots=True)
class MqttClient:
    """Who asks for MQTT topics: the user and the client id of its session."""

    user: str = ""
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class MqttPattern:
    """One pattern; `levels` are what each level is and its text."""

    levels: tuple[tuple[_Level, str], ...]

    @classmethod
    def parse(cls, text: str) -> MqttPattern:
        """The pattern of a text. ILLEGAL_POLICY for what is no topic filter, or has another placeholder."""
        levels = text.split("/")
        legal = bool(text) and text.isprintable() and len(text) <= MAX_MQTT_PATTERN_CHARACTERS
        for number, level in enumerate(levels):
            wild = _ONE in level or _REST in level
            is_whole = level == _ONE or (level == _REST and number == len(levels) - 1)
            legal = legal and (is_whole or not wild)
        names = set(_PLACEHOLDER.findall(text))
        if not legal or not names <= {"clientid", "username"}:
            raise AccessRefused(
                "ILLEGAL_POLICY",
                f"{text[:200]!r} is no pattern of MQTT topics.",
                remedy="Use a topic filter of up to 1,024 characters, as in factory/+/line/#, and of placeholders "
                "${clientid} and ${username}.",
            )
        return cls(tuple((_kind_of(level), level) for level in _widen(levels)))

    def covers(self, topic_filter: str, client: MqttClient) -> bool:
        """Whether every topic that the filter of the client can match is one of the pattern's."""
        wanted = _split(topic_filter)
        if self._misses_system_topics and wanted[0].startswith("$"):
            return False
        for number, (kind, text) in enumerate(self.levels):
            if kind is _Level.REST:
                return True
            if number == len(wanted) or wanted[number] == _REST:
                return False
            if kind is not _Level.ONE and not _is_same(_fill(kind, text, client), wanted[number]):
                return False
        return len(self.levels) == len(wanted)

    def overlaps(self, topic_filter: str, client: MqttClient) -> bool:
        """Whether some topic that the filter of the client can match is one of the pattern's."""
        wanted = _split(topic_filter)
        if self._misses_system_topics and wanted[0].startswith("$"):
            return False
        kind, text = self.levels[0]
        if wanted[0] in (_ONE, _REST) and (_fill(kind, text, client) or "").startswith("$"):
            return False
        for number, (kind, text) in enumerate(self.levels):
            if kind is _Level.REST or (number < len(wanted) and wanted[number] == _REST):
                return True
            if number == len(wanted):
                return False
            filled = _fill(kind, text, client)
            if kind is not _Level.ONE and wanted[number] != _ONE and not _is_same(filled, wanted[number]):
                return False
            if filled is None and kind is _Level.PLACEHOLDER:
                return False
        return wanted[len(self.levels) :] in ((), (_REST,))

    @property
    def rank(self) -> tuple[int, ...]:
        """Sorts the more specific pattern first: from the left a text, a placeholder, `+`, the end, `#`."""
        return (*(int(kind) for kind, _ in self.levels), int(_Level.END))

    @property
    def _misses_system_topics(self) -> bool:
        return self.levels[0][0] in (_Level.ONE, _Level.REST)


@lru_cache(maxsize=4096)
def _split(topic_filter: str) -> tuple[str, ...]:
    return tuple(_widen(topic_filter.split("/")))


def _widen(levels: list[str]) -> list[str]:
    """`#` alone is `+/#`: a topic has one level at least."""
    return [_ONE, _REST] if levels == [_REST] else levels


def _kind_of(level: str) -> _Level:
    if level == _ONE:
        return _Level.ONE
    if level == _REST:
        return _Level.REST
    return _Level.PLACEHOLDER if _PLACEHOLDER.search(level) else _Level.TEXT


def _fill(kind: _Level, text: str, client: MqttClient) -> str | None:
    """The level's text for the client; None where it has no value for a placeholder, or for a wildcard."""
    if kind is _Level.TEXT:
        return text
    if kind is not _Level.PLACEHOLDER:
        return None
    values = {"clientid": client.client_id, "username": client.user}
    if not all(values[name] for name in _PLACEHOLDER.findall(text)):
        return None
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def _is_same(text: str | None, level: str) -> bool:
    """A client id may look like a wildcard; a wildcard that is asked for is never its text."""
    return text == level and level not in (_ONE, _REST)
