"""Functions for SQL: of rows, of columns, many at once, rows of a row, and an aggregate. See report.sql."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.udf import udf

REGIONS = {"kiosk": "north", "market": "south"}


def grams(weight: str) -> int:
    """Grams of a text such as '2kg' or '300g'."""
    unit = "kg" if weight.endswith("kg") else "g"
    return int(weight.removesuffix(unit)) * (1000 if unit == "kg" else 1)


def taxed(prices: pa.DoubleArray) -> pa.DoubleArray:
    """Prices with tax, a column at a time."""
    return pc.round(pc.multiply(prices, 1.19), 2)


@udf(capacity=10, timeout_s=2, retries=1)
async def region(shop: str) -> str:
    """Where a shop lies, as a directory far away would answer."""
    await asyncio.sleep(0.01)
    return REGIONS[shop]


def items(order: str) -> Iterator[str]:
    """Each item of an order."""
    yield from order.split("+")


class WeightedMean:
    """The mean of values by their weights."""

    def __init__(self) -> None:
        self.total = self.weight = 0.0

    def add(self, value: float, weight: float) -> None:
        self.total += value * weight
        self.weight += weight

    def retract(self, value: float, weight: float) -> None:
        self.total -= value * weight
        self.weight -= weight

    def merge(self, other: WeightedMean) -> None:
        self.total += other.total
        self.weight += other.weight

    def result(self) -> float | None:
        return round(self.total / self.weight, 2) if self.weight else None
