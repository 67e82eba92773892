"""Paths into JSON documents, as Flink takes them.

They begin with `$`; then come `.a`, `['a']`, `[0]`, `[*]`, `..a`, `[1:3]`, `[0,2]` and `[?(@.a > 1)]`. In mode strict,
which counts where none is written, what is missing is an error; in mode lax it is nothing. A path that may find several
things (`[*]`, `..`, slices, lists, conditions) gives an array.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

__all__ = ["JsonPath", "JsonPathError", "json_path"]

_CACHED_PATHS = 1_000
_MODE = re.compile(r"\s*(?:(strict|lax)\s+)?(.*)", re.DOTALL | re.IGNORECASE)
_STEP = re.compile(
    r"""
      \.\.(?P<deep>[\w$-]+|\*)
    | \.(?P<member>[^\W\d][\w$-]*|\*)
    | \.?\[\s*(?P<quoted>'[^']*'|"[^"]*")\s*\]
    | \[\s*(?P<list>-?\d+(?:\s*,\s*-?\d+)*)\s*\]
    | \[\s*(?P<from>-?\d*)\s*:\s*(?P<to>-?\d*)\s*\]
    | \[\s*(?P<star>\*)\s*\]
    | \[\s*\?\(\s*@(?P<field>(?:\.[\w$-]+)*)\s*
        (?:(?P<sign>==|!=|<=|>=|<|>)\s*(?P<value>'[^']*'|"[^"]*"|[\w.+-]+)\s*)?\)\s*\]
    """,
    re.VERBOSE,
)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class JsonPathError(ValueError):
    """A path that is none, or, in mode strict, one that does not lead anywhere."""


_Step = Callable[[object], Iterator[object]]


@dataclass(frozen=True)
class JsonPath:
    """One path. The first `single` steps lead to one thing each; a path with more may find several."""

    strict: bool
    single: int
    steps: tuple[_Step, ...]

    def read(self, document: object) -> object:
        """What is at the path: a list where that may be many, None for nothing or null. JsonPathError if strict."""
        found = [document]
        for place, step in enumerate(self.steps):
            found = [value for parent in found for value in step(parent)]
            if not found and self.strict and place < self.single:
                raise JsonPathError("nothing is there")
        if self.single < len(self.steps):
            return found
        return found[0] if found else None


@lru_cache(maxsize=_CACHED_PATHS)
def json_path(text: str) -> JsonPath:
    """The path that a text is. Raises JsonPathError."""
    mode, path = _MODE.match(text).groups()  # type: ignore[union-attr]
    path = path.strip()
    if not path.startswith("$"):
        raise JsonPathError(f"{text!r} does not begin with $")
    steps: list[_Step] = []
    single: int | None = None
    place = 1
    while place < len(path):
        match = _STEP.match(path, place)
        if match is None:
            raise JsonPathError(f"{text!r} is no path at {path[place:]!r}")
        step, several = _step(match)
        single = len(steps) if several and single is None else single
        steps.append(step)
        place = match.end()
    return JsonPath((mode or "strict").lower() == "strict", len(steps) if single is None else single, tuple(steps))


def _step(match: re.Match[str]) -> tuple[_Step, bool]:
    if match["deep"]:
        return _deep(match["deep"]), True
    if match["member"] == "*" or match["star"]:
        return _children, True
    if match["member"] or match["quoted"]:
        return _member(match["member"] or match["quoted"][1:-1]), False
    if match["list"]:
        places = [int(place) for place in match["list"].split(",")]
        return _elements(places), len(places) > 1
    if match["field"] is not None:
        return _condition(match), True
    bounds = slice(int(match["from"]) if match["from"] else None, int(match["to"]) if match["to"] else None)
    return _slice(bounds), True


def _member(name: str) -> _Step:
    def step(value: object) -> Iterator[object]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _children(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _elements(places: list[int]) -> _Step:
    def step(value: object) -> Iterator[object]:
        if isinstance(value, list):
            yield from (value[place] for place in places if -len(value) <= place < len(value))

    return step


def _slice(bounds: slice) -> _Step:
    def step(value: object) -> Iterator[object]:
        if isinstance(value, list):
            yield from value[bounds]

    return step


def _deep(name: str) -> _Step:
    def step(value: object) -> Iterator[object]:
        waiting = [value]
        while waiting:
            current = waiting.pop()
            if name == "*":
                yield from _children(current)
            elif isinstance(current, dict) and name in current:
                yield current[name]
            waiting += reversed(list(_children(current)))

    return step


def _condition(match: re.Match[str]) -> _Step:
    names = match["field"].split(".")[1:]
    compare = _COMPARISONS.get(match["sign"] or "")
    wanted = _constant(match["value"]) if match["value"] else None

    def holds(value: object) -> bool:
        for name in names:
            if not isinstance(value, dict) or name not in value:
                return False
            value = value[name]
        if compare is None:
            return True
        try:
            return compare(value, wanted)
        except TypeError:
            return False

    return lambda value: (child for child in _children(value) if holds(child))


def _constant(text: str) -> object:
    if text[0] in "'\"":
        return text[1:-1]
    if text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[text]
    try:
        return float(text) if any(sign in text for sign in ".eE") else int(text)
    except ValueError:
        raise JsonPathError(f"{text!r} is no value") from None
