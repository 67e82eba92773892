"""Functions that a user could have written and that are called in other ways than row by row, or that fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.streams.udf import BIGINT, STRING, udf, udtf


def halved(number: int) -> float:
    """Half of an even number; others are refused."""
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number / 2


def doubled_column(numbers: pa.Int64Array) -> pa.Int64Array:
    return pc.multiply(numbers, 2)


def scaled_column(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    return numbers * 10


@udf(arguments=[BIGINT], result=BIGINT, vectorised=True)
def picky_column(numbers):  # type: ignore[no-untyped-def]
    """Refuses columns that have a 13 anywhere."""
    if 13 in numbers.to_pylist():
        raise ValueError("unlucky")
    return numbers


@udf(arguments=[BIGINT], result=BIGINT, vectorised=True)
def short_column(numbers):  # type: ignore[no-untyped-def]
    return numbers[:1]


under_way = 0
most_under_way = 0


@udf(capacity=3, timeout_s=5)
async def answered(number: int) -> str:
    """An answer from far away, the sooner the larger the number."""
    global under_way, most_under_way
    under_way += 1
    most_under_way = max(most_under_way, under_way)
    for _ in range(20 - number):
        await asyncio.sleep(0)
    under_way -= 1
    return f"answer {number}"


tried: list[int] = []


@udf(retries=2)
async def stubborn(number: int) -> int:
    tried.append(number)
    if tried.count(number) <= number:
        raise ConnectionError("busy")
    return number


@udf(timeout_s=0.01)
async def silent(number: int) -> int:
    await asyncio.Event().wait()
    return number


@udtf()
async def steps(number: int) -> AsyncIterator[int]:
    for step in range(number):
        yield step


@udf(timeout_s=0.04)
def stuck(number: int) -> int:
    while number == 13:
        time.sleep(0.001)
    return number


@udf(arguments=[BIGINT], result=BIGINT, vectorised=True, timeout_s=0.04)
def stuck_column(numbers):  # type: ignore[no-untyped-def]
    while len(numbers) > 1:
        time.sleep(0.001)
    return numbers


def leaving(number: int) -> int:
    if number == 13:
        raise SystemExit(1)
    return number


def broken_words(text: str) -> Iterator[str]:
    yield text
    if text == "bad":
        raise KeyError(text)


@udf(result=STRING)
def wrong_type(number: int) -> object:
    return number if number % 2 else str(number)
