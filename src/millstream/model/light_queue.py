"""Light queues: index entries for records that other topics hold, one queue for each subscriber.

One record, many entries: a record's property INNER_MULTI_DISPATCH names the light queues that have it, and
INNER_MULTI_QUEUE_OFFSET its queue offset in each, comma separated in the same order. Names are stored as `%LMQ%NAME`.
Source of the two properties and of the prefix: RocketMQ's multi-dispatch (RIP-28; facts only). A NAME that begins with
`$` is a lite topic (`model/lite.py`), which holds records of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from millstream.model.errors import NameRefused
from millstream.model.lite import LITE_PREFIX
from millstream.model.topic import MAX_TOPIC_CHARACTERS

__all__ = [
    "LIGHT_PREFIX",
    "LIGHT_QUEUE_NUMBER",
    "LightPlace",
    "check_light_name",
    "decode_light_places",
    "encode_light_places",
    "is_light_queue",
    "light_name_of",
    "light_queue",
]

LIGHT_PREFIX: Final = "%LMQ%"
"""What the stored names of all light queues begin with."""

LIGHT_QUEUE_NUMBER: Final = 0
"""A light queue is like a topic of one queue, and this is its number."""

LightPlace = tuple[str, int]
"""The stored name of a light queue, and a queue offset there."""

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9_|-][%a-zA-Z0-9_|-]*")
_SEPARATOR: Final = ","


def light_queue(name: str) -> str:
    """The name under which a light queue is stored."""
    return LIGHT_PREFIX + name


def is_light_queue(stored_name: str) -> bool:
    """Whether a stored name is that of a light queue, and not of a topic or a lite topic."""
    return stored_name.startswith(LIGHT_PREFIX) and not stored_name.startswith(LITE_PREFIX)


def light_name_of(stored_name: str) -> str:
    """The NAME of a light queue's stored name."""
    return stored_name.removeprefix(LIGHT_PREFIX)


def check_light_name(name: str) -> None:
    """Refuse a NAME that no light queue can have: ILLEGAL_TOPIC. It is 1 to 122 letters, digits and `% | _ -`, and does
    not begin with `%`."""
    if not _LEGAL_NAME.fullmatch(name) or len(LIGHT_PREFIX) + len(name) > MAX_TOPIC_CHARACTERS:
        raise NameRefused(
            "ILLEGAL_TOPIC",
            f"{name[:200]!r} is no name of a light queue.",
            remedy=f"Use 1 to {MAX_TOPIC_CHARACTERS - len(LIGHT_PREFIX)} letters, digits, `|`, `_` and `-`.",
        )


def encode_light_places(places: Sequence[LightPlace]) -> tuple[str, str]:
    """The values of INNER_MULTI_DISPATCH and INNER_MULTI_QUEUE_OFFSET for these places."""
    return _SEPARATOR.join([name for name, _ in places]), _SEPARATOR.join([str(offset) for _, offset in places])


def decode_light_places(names: str, offsets: str) -> tuple[LightPlace, ...]:
    """The places that the two values say; none where they do not fit each other or name anything but light queues."""
    said, numbers = names.split(_SEPARATOR), offsets.split(_SEPARATOR)
    if len(said) != len(numbers):
        return ()
    if not all(number.isascii() and number.isdecimal() for number in numbers) or not all(map(is_light_queue, said)):
        return ()
    return tuple(zip(said, map(int, numbers), strict=True))
