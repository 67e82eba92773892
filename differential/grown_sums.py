"""Steps that aggregate: groupings that change, windows that are final, OVER."""

from __future__ import annotations

from random import Random

from differential.relations import Relation, condition, grown, numbers, quoted, texts

__all__ = ["SUMS", "window_call"]


def aggregates(random: Random, below: Relation, *, plain: bool = False) -> dict[str, str]:
    """One to three calls by the names of their columns."""
    found: dict[str, str] = {}
    columns = numbers(below)
    for number in range(random.randint(1, 3)):
        calls = ["COUNT(*)"]
        if columns:
            column = f"`{random.choice(columns)}`"
            calls += [f"{name}({column})" for name in ("SUM", "MIN", "MAX", "AVG", "COUNT")]
            calls += [f"COUNT(DISTINCT {column})", f"SUM(DISTINCT {column})"]
        call = random.choice(calls)
        if not plain and random.random() < 0.2:
            call = f"{call} FILTER (WHERE {condition(random, below)})" if columns or texts(below) else call
        found[f"n{below.mark}{number}"] = call
    return found


def keys_of(random: Random, below: Relation) -> tuple[str, ...]:
    """Columns to group by, or none."""
    candidates = [name for name in (*texts(below), *numbers(below)) if below.key != (name,)]
    return tuple(random.sample(candidates, min(len(candidates), random.choice((0, 1, 1, 1, 2)))))


def grouped(random: Random, below: Relation) -> Relation | None:
    """GROUP BY, with HAVING now and then."""
    keys, calls = keys_of(random, below), aggregates(random, below)
    named = ", ".join(f"{call} AS `{name}`" for name, call in calls.items())
    selected = f"{quoted(keys)}, {named}" if keys else named
    sql = f"SELECT {selected} FROM {{0}}"
    if keys and random.random() < 0.15:
        sets = random.choice((f"ROLLUP ({quoted(keys)})", f"GROUPING SETS (({quoted(keys)}), ())"))
        sql += f" GROUP BY {sets}"
    elif keys:
        sql += f" GROUP BY {quoted(keys)}"
    if keys and random.random() < 0.3:
        sql += f" HAVING COUNT(*) {random.choice(('> 1', '< 3', '= 2'))}"
    types = {**{name: below.types[name] for name in keys}, **dict.fromkeys(calls, "INT")}
    return grown("group", sql, types, below, changes=True, key=keys)


def distinct(random: Random, below: Relation) -> Relation | None:
    """SELECT DISTINCT."""
    keys = keys_of(random, below)
    if not keys:
        return None
    types = {name: below.types[name] for name in keys}
    return grown("distinct", f"SELECT DISTINCT {quoted(keys)} FROM {{0}}", types, below, changes=True, key=keys)


def window_call(random: Random, below: Relation, table: str, *, sessions: bool = True) -> tuple[str, tuple[str, ...]]:
    """A window of any kind as a table function over `table`, and the columns that cut its sessions."""
    at = f"DESCRIPTOR(`{below.time}`)"
    kind = random.choice(
        ("TUMBLE", "TUMBLE", "HOP", "CUMULATE", "SESSION") if sessions else ("TUMBLE", "HOP", "CUMULATE")
    )
    match kind:
        case "HOP" | "CUMULATE":
            size, step = random.choice(((6, 2), (4, 2), (9, 3)))
            return f"TABLE({kind}(TABLE {table}, {at}, {_seconds(step)}, {_seconds(size)}))", ()
        case "SESSION":
            keys = tuple(random.sample(texts(below), min(len(texts(below)), random.randint(0, 1))))
            by = f" PARTITION BY {quoted(keys)}" if keys else ""
            return f"TABLE(SESSION(TABLE {table}{by}, {at}, {_seconds(random.randint(1, 4))}))", keys
        case _:
            offset = random.choice(("", "", f", {_seconds(1)}"))
            return f"TABLE(TUMBLE(TABLE {table}, {at}, {_seconds(random.choice((2, 3, 5)))}{offset}))", ()


def windowed(random: Random, below: Relation) -> Relation | None:
    """Sums of windows, whose time may be event time again."""
    if below.time is None or below.windows:
        return None
    call, session_keys = window_call(random, below, "{0}")
    keys = tuple(dict.fromkeys((*session_keys, *keys_of(random, below))))
    calls = aggregates(random, below)
    # Flink leaves columns of these names out of a window that is over another.
    keeps_time = random.random() < 0.5
    bounds = ("window_start", "window_end", *(("window_time",) if keeps_time else ()))
    named = ", ".join(f"{call} AS `{name}`" for name, call in calls.items())
    time = f"t{below.mark}" if keeps_time else None
    shown = (f"window_time AS `{time}`",) if time else ("window_start", "window_end")
    parts = [*shown, *([quoted(keys)] if keys else []), named]
    sql = f"SELECT {', '.join(parts)} FROM {call} GROUP BY {', '.join((*bounds, *([quoted(keys)] if keys else [])))}"
    columns = {time: "TIME"} if time else {"window_start": "TIME", "window_end": "TIME"}
    types = {**columns, **{name: below.types[name] for name in keys}, **dict.fromkeys(calls, "INT")}
    known: dict[str, object] = {"time": time, "windows": time is None, "changes": below.changes}
    return grown("window", sql, types, below, key=(*columns, *keys), **known)


def over(random: Random, below: Relation) -> Relation | None:
    """Sums over the rows before, in the order of event time."""
    if below.time is None or below.changes or not numbers(below) or below.windows:
        return None
    keys = tuple(random.sample(texts(below), min(len(texts(below)), random.randint(0, 1))))
    frames = ["", f"RANGE BETWEEN {_seconds(random.randint(1, 5))} PRECEDING AND CURRENT ROW"]
    if below.in_order:
        # Of rows with equal times, these frames hold those that come first.
        frames.append(f"ROWS BETWEEN {random.randint(1, 3)} PRECEDING AND CURRENT ROW")
        frames.append("ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW")
    frame = random.choice(frames)
    by = f"PARTITION BY {quoted(keys)} " if keys else ""
    calls = {
        f"o{below.mark}{number}": random.choice(
            (f"SUM(`{column}`)", f"MIN(`{column}`)", f"MAX(`{column}`)", f"COUNT(`{column}`)", "COUNT(*)")
        )
        for number in range(random.randint(1, 2))
        for column in [random.choice(numbers(below))]
    }
    named = ", ".join(f"{call} OVER w AS `{name}`" for name, call in calls.items())
    sql = f"SELECT {quoted(below.names())}, {named} FROM {{0}} WINDOW w AS ({by}ORDER BY `{below.time}` {frame})"
    types = {**below.types, **dict.fromkeys(calls, "INT")}
    return grown("over", sql, types, below, time=below.time, key=below.key)


def _seconds(count: int) -> str:
    return f"INTERVAL '{count}' SECOND"


SUMS = (grouped, grouped, distinct, windowed, windowed, over)
