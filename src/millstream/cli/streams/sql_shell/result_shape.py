"""What is known of a job's results before its first row: which change, by which key, in which order."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from millstream.cli.streams.sql_shell.result_table import SortColumn
from millstream.streams.connectors.registry import connector_of
from millstream.streams.functions.zones import zone_of
from millstream.streams.plan.changelog import ChangelogMode, changelog_of, upsert_key_of
from millstream.streams.plan.nodes import JobPlan, Node, QueryPlan
from millstream.streams.plan.ordering import Sort
from millstream.streams.sql.options.settings import SETTINGS

__all__ = ["ResultMode", "ResultShape", "ShowSettings", "shapes_of"]

ResultMode = Literal["table", "changelog", "tableau"]


@dataclass(frozen=True, slots=True)
class ResultShape:
    """`key` are the places of the columns that name a row, None if nothing does; `is_query` tells a SELECT's rows
    from those of a print sink, which are always shown as they come.
    """

    columns: tuple[str, ...]
    changes: bool = False
    key: tuple[int, ...] | None = None
    order: tuple[SortColumn, ...] = ()
    is_query: bool = True


@dataclass(frozen=True, slots=True)
class ShowSettings:
    """The settings that say how results are shown."""

    mode: ResultMode = "table"
    max_rows: int = 1_000_000
    zone: datetime.tzinfo = field(default=datetime.UTC)

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> ShowSettings:
        """The values of SET, else the defaults."""

        def value(name: str) -> str:
            return settings.get(name, SETTINGS[name].default)

        return cls(
            mode=cast(ResultMode, value("sql-client.execution.result-mode").lower()),
            max_rows=int(value("sql-client.execution.max-table-result.rows")),
            zone=zone_of(value("table.local-time-zone")) or datetime.UTC,
        )


def shapes_of(plan: JobPlan | QueryPlan, query_label: str) -> dict[str, ResultShape]:
    """The shapes of the results that the user sees, by what their rows are labelled with."""
    if isinstance(plan, QueryPlan):
        return {query_label: _query_shape(plan.query)}
    return {
        sink.table.options.get("print-identifier") or sink.table.name: ResultShape(
            sink.input.schema.names, changelog_of(sink.input) is ChangelogMode.RETRACT, is_query=False
        )
        for sink in plan.sinks
        if connector_of(sink.table.connector).shows_rows
    }


def _query_shape(node: Node) -> ResultShape:
    names = node.schema.names
    changes = changelog_of(node) is ChangelogMode.RETRACT
    # A key names one row at a time; where rows only come, each of them stays.
    key = upsert_key_of(node) if changes else None
    places = tuple(names.index(name) for name in names if name in key) if key is not None else None
    order: tuple[SortColumn, ...] = ()
    if isinstance(node, Sort):
        order = tuple(SortColumn(names.index(of.column), of.ascending, of.has_nulls_first) for of in node.order)
    return ResultShape(names, changes, places, order)
