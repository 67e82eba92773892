"""How many rows go to a Python worker at once: 20,000, and fewer where they may be large."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from pyspark.sql import SparkSession

from millstream.streams.plan.nodes import Node, inputs_of

__all__ = ["MAX_NARROW_COLUMNS", "are_narrow", "start_with_batches"]

MAX_NARROW_COLUMNS: Final = 200
"""Columns of narrow rows at most, so that 20,000 of them stay below 64 MB."""

_LIMIT: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NONE: Final = str(2**31 - 1)
"""The value at which Spark looks at no sizes."""

_starting = threading.Lock()

T = TypeVar("T")


def are_narrow(nodes: Iterable[Node]) -> bool:
    """Whether rows of these nodes and all behind them have values of one width each, few enough of them."""
    return all(
        len(node.schema.fields) <= MAX_NARROW_COLUMNS
        and all(field.type.has_one_width for field in node.schema.fields)
        and are_narrow(inputs_of(node))
        for node in nodes
    )


def start_with_batches(session: SparkSession, start: Callable[[], T], *, narrow: bool) -> T:
    """What `start` starts: a query that keeps the session's settings as they are now.

    Spark weighs the rows for Python one by one against its limit in bytes, which takes as long as handing them over.
    Those of `narrow` rows cannot reach it.
    """
    with _starting, _without_weight(session) if narrow else _as_it_is():
        return start()


@contextmanager
def _without_weight(session: SparkSession) -> Iterator[None]:
    before = session.conf.get(_LIMIT)
    assert before is not None, "Spark has a limit of its own"
    session.conf.set(_LIMIT, _NONE)
    try:
        yield
    finally:
        session.conf.set(_LIMIT, before)


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield
