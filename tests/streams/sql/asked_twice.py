"""The tables t1, t2 and t3, and what a query over them gives: worked out from its plan, and by SQLite."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from plan_answers import answer

from millstream.streams.plan.nodes import QueryPlan
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["asked_answer", "planned_answer", "random_tables"]

Tables = Mapping[str, Sequence[tuple[Any, ...]]]

_NAMES = ("t1", "t2", "t3")
_COLUMNS = ("id", "k", "v", "s")
_SESSION = SqlSession()
_SESSION.compile(
    "".join(
        f"CREATE TABLE {name} (id BIGINT, k BIGINT, v BIGINT, s STRING) "
        f"WITH ('connector' = 'rocketmq', 'topic' = '{name}');"
        for name in _NAMES
    )
)


def random_tables(chance: random.Random) -> Tables:
    """Rows with few values, so that they meet, and with NULLs."""

    def rows() -> list[tuple[Any, ...]]:
        numbers = [None, 1, 2, 3]
        count = chance.randrange(7)
        return [(place, *chance.choices(numbers, k=2), chance.choice([None, "a", "b"])) for place in range(count)]

    return {name: rows() for name in _NAMES}


def planned_answer(query: str, tables: Tables) -> Counter[tuple[Any, ...]]:
    """The rows that the plan of the query gives."""
    plan = _SESSION.compile(query)[-1]
    assert isinstance(plan, QueryPlan)
    named = {name: [dict(zip(_COLUMNS, row, strict=True)) for row in rows] for name, rows in tables.items()}
    return Counter(answer(plan.query, named))


def asked_answer(query: str, tables: Tables) -> Counter[tuple[Any, ...]]:
    """The rows that SQLite gives."""
    with sqlite3.connect(":memory:") as database:
        for name, rows in tables.items():
            database.execute(f"CREATE TABLE {name} (id INTEGER, k INTEGER, v INTEGER, s TEXT)")
            database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", rows)
        found = Counter(database.execute(query).fetchall())
    database.close()
    return found
