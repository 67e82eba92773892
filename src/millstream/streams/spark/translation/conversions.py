"""Changes as rows that say what they are, and rows that say so as changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.conversions import FromChangelog, ToChangelog
from millstream.streams.spark.translation.rows import Rows

__all__ = ["converted_rows"]


def converted_rows(node: ToChangelog | FromChangelog, rows: Rows) -> Rows:
    """The rows of `node`, whose input has `rows`."""
    if isinstance(node, FromChangelog):
        code = rows.columns[node.op]
        kind = _chosen(code, node.kinds).cast("tinyint")
        if node.fails:
            # What is no row, such as a tick, has no code either.
            is_row = F.lit(True) if rows.condition is None else F.coalesce(rows.condition, F.lit(False))
            kind = F.when(is_row, F.coalesce(kind, F.raise_error(_unknown(code, node)).cast("tinyint")))
        kept = {name: rows.columns[name] for name in node.schema.names}
        return replace(rows.with_columns(kept), kind=kind).where(kind.isNotNull())
    # Sources and operators leave the kind of an insert blank.
    told = F.lit(RowKind.INSERT.value) if rows.kind is None else F.coalesce(rows.kind, F.lit(RowKind.INSERT.value))
    code = _chosen(told, node.codes)
    columns = {name: code if name == node.op else rows.columns[name] for name in node.schema.names}
    return replace(rows.with_columns(columns), kind=None).where(code.isNotNull())


def _unknown(code: SparkColumn, node: FromChangelog) -> SparkColumn:
    """Why a row with that code ends the job."""
    known = ", ".join(f"'{code}'" for code, _ in node.kinds)
    shown = F.coalesce(F.concat(F.lit("'"), code, F.lit("'")), F.lit("NULL"))
    remedy = "Give it a kind in op_mapping, or leave such rows out by error_handling => 'SKIP'."
    words = f", but FROM_CHANGELOG knows {known}. {remedy}"
    return F.concat(F.lit("A row has the code "), shown, F.lit(f' in "{node.op}"{words}'))


def _chosen(value: SparkColumn, pairs: Iterable[tuple[object, object]]) -> SparkColumn:
    """What belongs to the value; NULL for one that has nothing."""
    (first, chosen), *others = pairs
    start = F.when(value == F.lit(first), F.lit(chosen))
    return reduce(lambda found, pair: found.when(value == F.lit(pair[0]), F.lit(pair[1])), others, start)
