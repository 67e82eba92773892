"""A case: the rows of its tables in the order in which they come, where micro-batches end, and one query over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Arrival", "Case", "Source", "Step"]


@dataclass(frozen=True, slots=True)
class Source:
    """A table that is read. With a `key` its rows change (Debezium's format), else they are only added."""

    name: str
    columns: tuple[tuple[str, str], ...]
    delay_s: int
    key: str | None = None

    @property
    def time(self) -> str:
        """The event time: the last column."""
        return self.columns[-1][0]

    def declaration(self, options: str) -> str:
        """CREATE TABLE, with options in SQL."""
        columns = [f"`{name}` {of}" for name, of in self.columns]
        watermark = f"WATERMARK FOR `{self.time}` AS `{self.time}` - INTERVAL '{self.delay_s}' SECOND"
        key = [] if self.key is None else [f"PRIMARY KEY (`{self.key}`) NOT ENFORCED"]
        return f"CREATE TABLE `{self.name}` ({', '.join([*columns, watermark, *key])}) WITH ({options})"


@dataclass(frozen=True, slots=True)
class Arrival:
    """One row that comes to a table: `before` is gone then, `after` is there; times are texts."""

    table: str
    after: tuple[Any, ...] | None
    before: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One operator: a SELECT in which {0} and {1} are its inputs, each a step or the name of a table."""

    kind: str
    sql: str
    columns: tuple[str, ...]
    inputs: tuple[Step | str, ...]

    def all(self) -> Iterator[Step]:
        """The step and all below it, inputs first."""
        for below in self.inputs:
            if isinstance(below, Step):
                yield from below.all()
        yield self

    def tables(self) -> set[str]:
        """The names of the tables that are read."""
        return {below for step in self.all() for below in step.inputs if isinstance(below, str)}


@dataclass(frozen=True, slots=True)
class Case:
    """What both engines run. `cuts` are numbers of arrivals behind which a micro-batch ends.

    `has_late`: rows come behind the watermark, so micro-batches are of one row.
    """

    seed: int
    sources: tuple[Source, ...]
    arrivals: tuple[Arrival, ...]
    cuts: tuple[int, ...]
    query: Step
    has_late: bool = False

    @property
    def is_linear(self) -> bool:
        """Whether one chain of operators reads one table, so that Flink has one order of changes."""
        return all(len(step.inputs) == 1 for step in self.query.all())

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its operators, inputs first."""
        return tuple(step.kind for step in self.query.all())

    def views(self) -> list[tuple[str, str]]:
        """Name and SELECT of a view for each step, inputs first; the last one is the query."""
        views: list[tuple[str, str]] = []
        self._name(self.query, views)
        return views

    def _name(self, step: Step, views: list[tuple[str, str]]) -> str:
        inputs = [below if isinstance(below, str) else self._name(below, views) for below in step.inputs]
        name = f"s{len(views)}"
        views.append((name, step.sql.format(*(f"`{one}`" for one in inputs))))
        return name

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Case:
        """What `to_json` gave."""
        return cls(
            told["seed"],
            tuple(
                Source(one["name"], tuple((name, of) for name, of in one["columns"]), one["delay_s"], one["key"])
                for one in told["sources"]
            ),
            tuple(Arrival(one["table"], _row(one["after"]), _row(one["before"])) for one in told["arrivals"]),
            tuple(told["cuts"]),
            _step(told["query"]),
            told["has_late"],
        )


def _row(told: list[Any] | tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    return None if told is None else tuple(told)


def _step(told: dict[str, Any]) -> Step:
    inputs = tuple(below if isinstance(below, str) else _step(below) for below in told["inputs"])
    return Step(told["kind"], told["sql"], tuple(told["columns"]), inputs)
