"""Steps that rank rows, and patterns."""

from __future__ import annotations

from random import Random

from differential.grown_sums import window_call
from differential.relations import Relation, grown, numbers, quoted, texts

__all__ = ["PLACES"]


def _ranked(below: Relation, by: tuple[str, ...], order: str, bound: str, rank: str = "") -> str:
    parts = f"PARTITION BY {quoted(by)} " if by else ""
    shown = f", {rank}" if rank else ""
    return (
        f"SELECT {quoted(below.names())}{shown} FROM (SELECT *, ROW_NUMBER() OVER ({parts}ORDER BY {order}) AS"
        f" `{rank or 'place'}` FROM {{0}}) WHERE `{rank or 'place'}` {bound}"
    )


def _partition(random: Random, below: Relation) -> tuple[str, ...]:
    return tuple(random.sample(texts(below), min(len(texts(below)), random.choice((0, 1, 1)))))


def _order(random: Random, below: Relation) -> str | None:
    """An order of all rows, by a column and then by what tells them apart, so that no place is left to chance."""
    if not numbers(below) or not below.key:
        return None
    first = f"`{random.choice(numbers(below))}` {random.choice(('ASC', 'DESC', 'DESC'))}"
    return ", ".join([first, *(f"`{name}`" for name in below.key)])


def first_places(random: Random, below: Relation) -> Relation | None:
    """A Top-N."""
    order = _order(random, below)
    if order is None:
        return None
    by = _partition(random, below)
    # Flink 2.1 to 2.3 takes the first place among rows that are only added for final, whatever the order is, and leaves
    # rows at places behind the first where rows of its input go.
    bound = random.choice(("<= 1", "<= 2", "<= 3") if below.changes else ("<= 2", "<= 3", "= 2"))
    rank = f"r{below.mark}" if random.random() < 0.3 else ""
    types = {**below.types, **({rank: "INT"} if rank else {})}
    return grown("top", _ranked(below, by, order, bound, rank), types, below, changes=True, key=below.key)


def deduplicated(random: Random, below: Relation) -> Relation | None:
    """The first or the last row of each key."""
    if below.time is None or below.changes or below.windows or not below.in_order:
        return None
    by = _partition(random, below) or tuple(numbers(below)[:1])
    direction = random.choice(("ASC", "DESC"))
    sql = _ranked(below, by, f"`{below.time}` {direction}", "= 1")
    return grown(f"dedup {direction.lower()}", sql, below.types, below, changes=True, key=by)


def places_in_windows(random: Random, below: Relation) -> Relation | None:
    """The first places of each window, over rows or over the sums of windows."""
    order = _order(random, below)
    if order is None or below.changes:
        return None
    if below.windows:
        by = ("window_start", "window_end", *_partition(random, below))
        sql = _ranked(below, by, order, random.choice(("<= 1", "<= 2")))
        return grown("window top", sql, below.types, below, windows=True, key=below.key)
    if below.time is None:
        return None
    call, keys = window_call(random, below, "{0}", sessions=False)
    by = ("window_start", "window_end", *keys, *_partition(random, below))
    is_dedup = below.in_order and random.random() < 0.4
    direction = random.choice(("ASC", "DESC"))
    sql = _ranked(below, by, f"`{below.time}` {direction}" if is_dedup else order, "= 1" if is_dedup else "<= 2")
    types = {**below.types, "window_start": "TIME", "window_end": "TIME"}
    columns = quoted(list(types))
    sql = sql.replace("{0}", call).replace(f"SELECT {quoted(below.names())}", f"SELECT {columns}", 1)
    kind = "window dedup" if is_dedup else "window top"
    return grown(kind, sql, types, below, windows=True, key=("window_start", "window_end", *below.key))


def matched(random: Random, below: Relation) -> Relation | None:
    """A pattern of two or three variables that no row fits twice."""
    if below.time is None or below.changes or not numbers(below) or below.windows or not below.in_order:
        return None
    column = random.choice(numbers(below))
    by = tuple(random.sample(texts(below), min(len(texts(below)), 1)))
    parts = f"PARTITION BY {quoted(by)} " if by else ""
    pattern = random.choice(("A B", "A B* C", "A B+ C", "A B? C", "A B{{1,2}} C"))
    within = random.choice(("", "", " WITHIN INTERVAL '5' SECOND"))
    skip = random.choice(("PAST LAST ROW", "TO NEXT ROW"))
    measures = [f"FIRST(A.`{column}`) AS m1", f"LAST(B.`{column}`) AS m2", f"LAST(A.`{below.time}`) AS m3"]
    defines = [f"A AS A.`{column}` < 4", f"B AS B.`{column}` >= 4 AND B.`{column}` < 8"]
    if "C" in pattern:
        measures.append(f"COUNT(B.`{column}`) AS m4")
        defines.append(f"C AS C.`{column}` >= 8")
    sql = (
        f"SELECT * FROM {{0}} MATCH_RECOGNIZE ({parts}ORDER BY `{below.time}` MEASURES {', '.join(measures)}"
        f" ONE ROW PER MATCH AFTER MATCH SKIP {skip} PATTERN ({pattern}){within} DEFINE {', '.join(defines)})"
    )
    types = {**dict.fromkeys(by, "STRING"), "m1": "INT", "m2": "INT", "m3": "TIME"}
    if "C" in pattern:
        types["m4"] = "INT"
    return grown("match", sql, types, below)


PLACES = (first_places, first_places, deduplicated, places_in_windows, matched)
