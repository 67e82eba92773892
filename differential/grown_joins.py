"""Steps over two inputs."""

from __future__ import annotations

from random import Random

from differential.grown_sums import window_call
from differential.relations import BASES, Relation, condition, grown, numbers, quoted, texts

__all__ = ["JOINS"]


def _both(left: Relation, right: Relation) -> tuple[str, dict[str, str], dict[str, str]]:
    """The columns of both sides in SELECT, their types, and the names that the right ones have then."""
    renamed = {name: f"{name}_{left.depth() + right.depth()}" for name in right.names()}
    columns = [f"l.`{name}`" for name in left.names()]
    columns += [f"r.`{name}` AS `{renamed[name]}`" for name in right.names()]
    types = {**left.types, **{renamed[name]: of for name, of in right.types.items()}}
    return ", ".join(columns), types, renamed


def _equal(random: Random, left: Relation, right: Relation) -> str | None:
    """An equation of a column of each side."""
    of = random.choice(("STRING", "STRING", "INT"))
    ours = texts(left) if of == "STRING" else numbers(left)
    theirs = texts(right) if of == "STRING" else numbers(right)
    return f"l.`{random.choice(ours)}` = r.`{random.choice(theirs)}`" if ours and theirs else None


def joined(random: Random, left: Relation, right: Relation) -> Relation | None:
    """A regular join."""
    on = _equal(random, left, right)
    if on is None:
        return None
    columns, types, renamed = _both(left, right)
    kind = random.choice(("INNER", "LEFT", "RIGHT", "FULL"))
    if numbers(left) and numbers(right) and random.random() < 0.3:
        on += f" AND l.`{random.choice(numbers(left))}` <= r.`{random.choice(numbers(right))}`"
    key = (*left.key, *(renamed[name] for name in right.key)) if left.key and right.key else ()
    sql = f"SELECT {columns} FROM {{0}} AS l {kind} JOIN {{1}} AS r ON {on}"
    changes = left.changes or right.changes or kind != "INNER"
    return grown(f"join {kind.lower()}", sql, types, left, right, changes=changes, key=key)


def interval_joined(random: Random, left: Relation, right: Relation) -> Relation | None:
    """A join of rows whose times are near each other."""
    on = _equal(random, left, right)
    if on is None or left.time is None or right.time is None or left.changes or right.changes:
        return None
    if left.windows or right.windows:
        return None
    columns, types, renamed = _both(left, right)
    kind = random.choice(("INNER", "INNER", "LEFT", "RIGHT", "FULL"))
    low, high = random.randint(0, 4), random.randint(0, 4)
    key = (*left.key, *(renamed[name] for name in right.key)) if left.key and right.key else ()
    sql = (
        f"SELECT {columns} FROM {{0}} AS l {kind} JOIN {{1}} AS r ON {on} AND l.`{left.time}` BETWEEN"
        f" r.`{right.time}` - INTERVAL '{low}' SECOND AND r.`{right.time}` + INTERVAL '{high}' SECOND"
    )
    time = left.time if kind in ("INNER", "LEFT") and random.random() < 0.5 else None
    return grown(f"interval {kind.lower()}", sql, types, left, right, time=time, key=key)


def temporal(random: Random, left: Relation, _right: Relation) -> Relation | None:
    """A join with the versions of a table, declared or kept by the last row of each key."""
    if left.time is None or left.changes or not texts(left) or left.windows:
        return None
    right = BASES["r"]
    if random.random() < 0.4:
        base = BASES["b"]
        sql = (
            "SELECT `k`, `v`, `ts` FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY `k` ORDER BY `ts` DESC) AS place"
            " FROM {0} WHERE `k` IS NOT NULL) WHERE place = 1"
        )
        types = {name: base.types[name] for name in ("k", "v", "ts")}
        right = grown("versions", sql, types, base, time="ts", changes=True, key=("k",))
    columns, types, _ = _both(left, right)
    kind = random.choice(("INNER", "LEFT"))
    sql = (
        f"SELECT {columns} FROM {{0}} AS l {kind} JOIN {{1}} FOR SYSTEM_TIME AS OF l.`{left.time}` AS r"
        f" ON l.`{random.choice(texts(left))}` = r.`k`"
    )
    return grown(f"temporal {kind.lower()}", sql, types, left, right, time=left.time, key=left.key)


def window_joined(random: Random, left: Relation, right: Relation) -> Relation | None:
    """A join of the rows of one window."""
    if left.time is None or right.time is None or left.changes or right.changes or left.windows or right.windows:
        return None
    on = _equal(random, left, right)
    if on is None:
        return None
    seed = random.random()
    ours, _ = window_call(Random(seed), left, "{0}", sessions=False)
    theirs, _ = window_call(Random(seed), right, "{1}", sessions=False)
    bounds = "l.window_start = r.window_start AND l.window_end = r.window_end"
    if random.random() < 0.25:
        test = random.choice(("EXISTS", "NOT EXISTS"))
        types = {**left.types, "window_start": "TIME", "window_end": "TIME"}
        sql = (
            f"SELECT {quoted(list(types), 'l')} FROM (SELECT * FROM {ours}) AS l WHERE {test} (SELECT * FROM"
            f" (SELECT * FROM {theirs}) AS r WHERE {on} AND {bounds})"
        )
        key = ("window_start", "window_end", *left.key)
        return grown(f"window {test.lower()}", sql, types, left, right, windows=False, key=key)
    columns, types, renamed = _both(left, right)
    kind = random.choice(("INNER", "LEFT", "RIGHT", "FULL"))
    sql = (
        f"SELECT {columns}, COALESCE(l.window_start, r.window_start) AS w FROM (SELECT * FROM {ours}) AS l {kind} JOIN"
        f" (SELECT * FROM {theirs}) AS r ON {on} AND {bounds}"
    )
    key = (*left.key, *(renamed[name] for name in right.key), "w") if left.key and right.key else ()
    return grown(f"window {kind.lower()}", sql, {**types, "w": "TIME"}, left, right, key=key)


def united(random: Random, left: Relation, right: Relation) -> Relation | None:
    """UNION ALL, or an operation on sets, of columns that both have in common by type."""
    pairs: list[tuple[str, str]] = []
    for columns in (numbers, texts):
        pairs += list(zip(columns(left)[:2], columns(right)[:2], strict=False))
    if not pairs:
        return None
    both_timed = left.time is not None and right.time is not None and not (left.windows or right.windows)
    time = left.time if both_timed else None
    if both_timed:
        pairs.append((left.time or "", right.time or ""))
    word = random.choice(
        ("UNION ALL", "UNION ALL", "UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
    )
    sql = (
        f"SELECT {quoted([ours for ours, _ in pairs])} FROM {{0}} {word}"
        f" SELECT {quoted([theirs for _, theirs in pairs])} FROM {{1}}"
    )
    types = {ours: left.types[ours] for ours, _ in pairs}
    if word == "UNION ALL":
        return grown("union all", sql, types, left, right, time=time, changes=left.changes or right.changes)
    return grown(word.lower(), sql, types, left, right, changes=True, key=() if "ALL" in word else tuple(types))


def semi_joined(random: Random, left: Relation, right: Relation) -> Relation | None:
    """IN, NOT IN, EXISTS or NOT EXISTS."""
    on = _equal(random, left, right)
    if on is None:
        return None
    ours, theirs = on.split(" = ")
    word = random.choice(("IN", "NOT IN", "EXISTS", "NOT EXISTS"))
    where = f" WHERE {condition(random, right, 'r')}" if random.random() < 0.4 else ""
    if word.endswith("IN"):
        test = f"{ours} {word} (SELECT {theirs} FROM {{1}} AS r{where})"
    else:
        test = f"{word} (SELECT 1 FROM {{1}} AS r WHERE {on}{where.replace(' WHERE', ' AND')})"
    sql = f"SELECT {quoted(left.names(), 'l')} FROM {{0}} AS l WHERE {test}"
    return grown(word.lower(), sql, left.types, left, right, changes=True, key=left.key)


JOINS = (joined, joined, joined, interval_joined, interval_joined, temporal, window_joined, united, united, semi_joined)
