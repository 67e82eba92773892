"""JSON text: validation, Flink's JSON paths, and quoting."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final

import msgspec

__all__ = [
    "JsonPath",
    "JsonPathError",
    "SearchEnd",
    "checked_json",
    "is_json",
    "json_exists",
    "json_path",
    "json_query",
    "json_tuple",
    "json_value",
    "json_value_state",
    "quoted_json",
    "unquoted_json",
]


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


_LONG_NUMBER = re.compile(r"\d{19}")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPECIAL = re.compile(r'["\\/\x00-\x1f]')
_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_INTEGER_BITS = {"INT": 31, "BIGINT": 63}


class SearchEnd(IntEnum):
    """How a search in a document ended."""

    VALUE = 0
    EMPTY = 1
    ERROR = 2


def _decode(document: str) -> object:
    """The value of a JSON text. Raises ValueError."""
    if _LONG_NUMBER.search(document):
        # msgspec would make a float of a whole number that has more than 64 bits.
        return json.loads(document, parse_float=_fraction, parse_constant=_refuse_constant)
    return _DECODER.decode(document)


def _fraction(text: str) -> Decimal:
    """The number as it is written, with all its digits; zero has no sign."""
    try:
        number = Decimal(text)
    except ArithmeticError:
        raise ValueError(f"{text} is too large for a number") from None
    return number if number else number.copy_abs()


_DECODER: Final = msgspec.json.Decoder(float_hook=_fraction)


def _refuse_constant(text: str) -> object:
    raise ValueError(f"{text} is no JSON")


def _write(value: object) -> str:
    """The value as compact JSON text, with the digits that numbers have."""
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case Decimal() | int():
            return str(value)
        case list():
            return f"[{','.join(map(_write, value))}]"
        case dict():
            return "{" + ",".join(f"{_write(key)}:{_write(part)}" for key, part in value.items()) + "}"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _search(document: str, path: str) -> tuple[SearchEnd, object, bool]:
    """How it ended, what was found, and whether the path is strict, for which null is an error as well."""
    try:
        wanted = json_path(path)
    except JsonPathError:
        return SearchEnd.ERROR, None, True
    try:
        whole = _decode(document)
        value = wanted.read(whole)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return (SearchEnd.ERROR if wanted.strict else SearchEnd.EMPTY), None, wanted.strict
    if value is None or whole is None:
        return (SearchEnd.ERROR if wanted.strict or whole is None else SearchEnd.EMPTY), None, wanted.strict
    return SearchEnd.VALUE, value, wanted.strict


def _scalar(document: str, path: str, returning: str) -> tuple[SearchEnd, str | None]:
    ended, value, strict = _search(document, path)
    if ended is not SearchEnd.VALUE:
        return ended, None
    if isinstance(value, dict | list):
        return (SearchEnd.ERROR if strict else SearchEnd.EMPTY), None
    text = value if isinstance(value, str) else _write(value)
    return (SearchEnd.VALUE, text) if _fits(text, returning) else (SearchEnd.ERROR, None)


def _fits(text: str, returning: str) -> bool:
    if returning in _INTEGER_BITS:
        limit = 2 ** _INTEGER_BITS[returning]
        return _WHOLE.fullmatch(text) is not None and -limit <= int(text) < limit
    if returning == "BOOLEAN":
        return text.lower() in ("true", "false")
    return returning == "STRING" or _NUMBER.fullmatch(text) is not None


def json_value(document: str, path: str, returning: str) -> str | None:
    """The text of the scalar at a path; None where there is none that can become the type `returning`."""
    return _scalar(document, path, returning)[1]


def json_tuple(document: str, *paths: str) -> list[str | None]:
    """The scalars at the paths; one that does not begin with $ is the name of a member."""
    whole = (path if path.startswith("$") else f'$["{path}"]' for path in paths)
    return [json_value(document, path, "STRING") for path in whole]


def json_value_state(document: str, path: str, returning: str) -> int:
    """How the search for `json_value` ended, as the number of a `SearchEnd`."""
    return _scalar(document, path, returning)[0]


def json_exists(document: str, path: str, on_error: str) -> bool | None:
    """Whether something other than null is at the path; `on_error` is TRUE, FALSE or UNKNOWN."""
    ended = _search(document, path)[0]
    if ended is SearchEnd.ERROR:
        return {"TRUE": True, "FALSE": False}.get(on_error)
    return ended is SearchEnd.VALUE


def json_query(document: str, path: str, wrapper: str, on_empty: str, on_error: str) -> str | None:
    """The object or array at a path as JSON text; `wrapper` is WITHOUT, CONDITIONAL or UNCONDITIONAL."""
    ended, value, strict = _search(document, path)
    wrapped = wrapper == "UNCONDITIONAL" or (wrapper == "CONDITIONAL" and not isinstance(value, list))
    if ended is SearchEnd.VALUE and wrapped:
        value = [value]
    if ended is SearchEnd.VALUE and isinstance(value, dict | list):
        return _write(value)
    failed = ended is SearchEnd.ERROR or (ended is SearchEnd.VALUE and strict)
    return {"EMPTY ARRAY": "[]", "EMPTY OBJECT": "{}"}.get(on_error if failed else on_empty)


def is_json(document: str | None, shape: str) -> bool:
    """Whether the text is JSON of the shape VALUE (any), SCALAR, ARRAY or OBJECT."""
    if document is None:
        return False
    try:
        value = _decode(document)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    found = "OBJECT" if isinstance(value, dict) else "ARRAY" if isinstance(value, list) else "SCALAR"
    return shape in ("VALUE", found)


def checked_json(text: str) -> str | None:
    """The text itself if it is JSON."""
    return text if is_json(text, "VALUE") else None


def quoted_json(text: str) -> str:
    """The text as a JSON string."""
    return '"' + _SPECIAL.sub(lambda match: _ESCAPES.get(match[0], f"\\u{ord(match[0]):04x}"), text) + '"'


def unquoted_json(text: str) -> str:
    """The text of a JSON string; what is none stays as it is."""
    if len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
        return text
    try:
        value = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text
    return value if isinstance(value, str) else text
