"""Functions that a user could have written."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from millstream.streams.functions.user_functions.user import sql_function
from millstream.streams.plan.types import INT, STRING


def tripled(number: int) -> int:
    """Three times the number."""
    return number * 3


def greeted(name: str | None, greeting: str = "Hello") -> str:
    return f"{greeting}, {name or 'you'}"


def joined(*parts: str) -> str:
    return "+".join(parts)


def failing(text: str) -> int:
    return int(text)


def lying(text: str) -> int:
    return text  # type: ignore[return-value]


def day_later(time: datetime.datetime) -> datetime.datetime:
    return time + datetime.timedelta(days=1)


def words(text: str) -> Iterator[str]:
    yield from text.split()


class Part(NamedTuple):
    place: int
    word: str


def numbered(text: str) -> Iterator[Part]:
    yield from (Part(place, word) for place, word in enumerate(text.split(), 1))


@dataclass
class Point:
    x: float
    y: float


def point(x: float, y: float) -> Point:
    return Point(x, y)


def counted(text: str) -> dict[str, int]:
    return {character: text.count(character) for character in text}


@sql_function(arguments=[INT], result=STRING, deterministic=False)
def declared(number):  # type: ignore[no-untyped-def]
    return str(number)


class Doubler:
    def eval(self, number: int) -> int:
        return number * 2


def without_types(text):  # type: ignore[no-untyped-def]
    return text


def of_strange_type(text: str) -> complex:
    return complex(text)


NOT_CALLABLE = 5
