"""Aggregates that a user could have written."""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass

from millstream.streams.plan.types import BIGINT
from millstream.streams.udf import udaf


class WeightedMean:
    """The mean of the values by their weights."""

    def create_accumulator(self) -> list[float]:
        return [0.0, 0.0]

    def accumulate(self, accumulator: list[float], value: float | None, weight: float = 1.0) -> None:
        if value is not None:
            accumulator[0] += value * weight
            accumulator[1] += weight

    def retract(self, accumulator: list[float], value: float | None, weight: float = 1.0) -> None:
        if value is not None:
            accumulator[0] -= value * weight
            accumulator[1] -= weight

    def merge(self, accumulator: list[float], others: list[list[float]]) -> None:
        for total, weight in others:
            accumulator[0] += total
            accumulator[1] += weight

    def get_value(self, accumulator: list[float]) -> float:
        return accumulator[0] / accumulator[1] if accumulator[1] else None  # type: ignore[return-value]


@dataclass
class Span:
    """The longest text, and how many there were, NULLs too."""

    longest: str = ""
    rows: int = 0

    def add(self, text: str) -> None:
        self.rows += 1
        self.longest = max(self.longest, text or "", key=len)

    def merge(self, other: Span) -> None:
        self.rows += other.rows
        self.longest = max(self.longest, other.longest, key=len)

    def result(self) -> tuple[str, int]:
        return self.longest, self.rows


class Product:
    """A product in an accumulator that is never changed in place; it cannot be put together."""

    def create_accumulator(self) -> int:
        return 1

    def accumulate(self, accumulator: int, number: int) -> int:
        return accumulator * number

    def get_value(self, accumulator: int) -> int:
        return accumulator


class LatestDay:
    def __init__(self) -> None:
        self.latest: datetime.datetime | None = None

    def add(self, moment: datetime.datetime) -> None:
        if self.latest is None or moment > self.latest:
            self.latest = moment

    def result(self) -> datetime.date | None:
        return None if self.latest is None else self.latest.date()


class Shelf:
    """Keeps all it sees, as an aggregate should not."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []

    def add(self, size: int) -> None:
        self.rows.append(bytes(size))

    def result(self) -> int:
        return len(self.rows)


@udaf(arguments=[BIGINT], result=list[int])
class Seen:
    """Numbers in the order in which they came; 13 is refused."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def add(self, number):  # type: ignore[no-untyped-def]
        if number == 13:
            raise ValueError("unlucky")
        self.numbers.append(number)

    def retract(self, number):  # type: ignore[no-untyped-def]
        self.numbers.remove(number)

    def merge(self, other):  # type: ignore[no-untyped-def]
        self.numbers += other.numbers

    def result(self):  # type: ignore[no-untyped-def]
        return self.numbers


class Parts:
    """Numbers in lists by their last bit, which a merge takes over as they are."""

    def __init__(self) -> None:
        self.lists: dict[int, list[int]] = {}

    def add(self, number: int) -> None:
        self.lists.setdefault(number % 2, []).append(number)

    def merge(self, other: Parts) -> None:
        self.lists |= other.lists

    def result(self) -> list[int]:
        return sorted(number for numbers in self.lists.values() for number in numbers)


class Stuck:
    """Never comes back from 13."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, number: int) -> None:
        while number == 13:
            time.sleep(0.001)
        self.total += number

    def result(self) -> int:
        return self.total


class Liar:
    def add(self, number: int) -> None:
        pass

    def result(self) -> int:
        return "many"  # type: ignore[return-value]


@udaf(result=int)
class Hollow:
    """Declared, but without the methods."""
