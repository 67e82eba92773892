"""What a node keeps between micro-batches, and why it runs where it runs, in words for EXPLAIN."""

from __future__ import annotations

from millstream.streams.plan.aggregates import Aggregate, WindowAggregate
from millstream.streams.plan.backends import Backend, backend_of, why_own_in_batch
from millstream.streams.plan.changelog import Changelog, changelog_of, first_by_time
from millstream.streams.plan.conflicts import OnePerKey
from millstream.streams.plan.joins import Join, SetOperation, TemporalJoin
from millstream.streams.plan.nodes import Node, Normalize, WindowRows
from millstream.streams.plan.ordering import Over, Rank, Sort
from millstream.streams.plan.patterns import Match

__all__ = ["kept_state"]


def kept_state(node: Node, *, own: bool) -> str | None:
    """One line; None for a node that keeps nothing. `own`: the query needs operators of ours in batch jobs anyway."""
    kept = _kept(node)
    if kept is None:
        return None
    if not isinstance(node, WindowAggregate):
        on_spark = isinstance(node, Join | Aggregate) and why_own_in_batch(node) is None
        return f"state: {kept}; in batch jobs none, Spark's own operator" if on_spark else f"state: {kept}"
    reason = why_own_in_batch(node) or ("other nodes of the query need them" if own else None)
    if reason is None:
        return f"state: {kept}; in batch jobs Spark's own window"
    return f"state: {kept}; own operator in batch jobs too: {reason}"


def _kept(node: Node) -> str | None:
    match node:
        case Aggregate():
            values = ", the values of DISTINCT" if any(call.distinct for _, call in node.aggregates) else ""
            rows = "one row for each key" if node.keys else "one row"
            return f"{rows}{values}, {_duration(node.state_ttl_ms)}"
        case WindowAggregate(emit=emit):
            late = (
                ""
                if emit is None or not emit.lateness_ms
                else f" and those that ended in the last {emit.lateness_ms} ms"
            )
            return f"open windows{late}"
        case WindowRows():
            return "rows of open sessions" if backend_of(node) is Backend.OWN else None
        case Join():
            return _kept_by_join(node)
        case TemporalJoin():
            return "rows that wait for the watermark, and the versions that they may need"
        case SetOperation():
            return "how often each row stands on each side, for ever or the job's TTL"
        case OnePerKey():
            return "all rows of each key of the table, for ever or the job's TTL"
        case Normalize():
            return "the last row of each key"
        case Rank() | Over() | Sort():
            return _kept_by_order(node)
        case Match(within_ms=within):
            return f"partial matches{'' if within is None else f' of at most {within} ms'}"
        case _:
            return None


def _kept_by_join(node: Join) -> str:
    if node.bounds is not None:
        return "rows whose partners may still come"
    if node.window_ends is not None:
        return "rows of open windows"
    left, right = node.state_ttl_ms or (None, None)
    if left == right:
        return f"all rows of both sides, {_duration(left)}"
    return f"all rows of the left side, {_duration(left)}, and of the right side, {_duration(right)}"


def _kept_by_order(node: Rank | Over | Sort) -> str:
    changes = changelog_of(node.input) is Changelog.RETRACT
    match node:
        case Rank() if first_by_time(node) is not None:
            return "the first row of each key until the watermark comes to it, then the key, for ever or the job's TTL"
        case Rank(last=last):
            rows = "all rows" if changes else f"the first {last} rows" if last > 1 else "the first row"
            return f"{rows} of each partition{' of open windows' if node.window_end is not None else ''}"
        case Over(whole=True):
            return "all rows until the end"
        case Over():
            timed = changelog_of(node) is Changelog.APPEND
            return (
                "rows that wait for the watermark, and those of the frames" if timed else "all rows of each partition"
            )
        case Sort(limit=limit, offset=offset):
            if limit is None:
                return "rows that wait for the watermark" if node.order else "how many rows were left out"
            if not node.order:
                return "how many rows were given"
            return "all rows" if changes else f"the first {limit + offset} rows"


def _duration(ttl_ms: int | None) -> str:
    return "for ever or the job's TTL" if ttl_ms is None else f"for {ttl_ms} ms"
