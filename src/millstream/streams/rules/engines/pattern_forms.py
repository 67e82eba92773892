"""Translates Python regular expressions for hyperscan: exactly, or as a superset of what `re` matches.

Hyperscan reads another dialect: `\\s`, `\\w` and caseless letters beyond ASCII, `[[:alpha:]]`, `{,3}` and more differ,
and it knows no look-around and no back-references. So the expression is parsed by `re` itself and written again from
what `re` understood; each class of characters is written as the ASCII characters that `re` finds in it.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

__all__ = ["HyperscanForm", "hyperscan_forms"]

_NEVER_ASCII: Final = r"\xff"
"""What no text of ASCII has."""

_BEYOND: Final = r"\x{80}-\x{10ffff}"
_LONGEST_COUNT: Final = 64
"""Of a repetition, in a form that may find more than the expression."""

_INLINE: Final = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.ASCII | re.UNICODE


class HyperscanForm(NamedTuple):
    """An expression for hyperscan; what it finds is only a candidate where it is not `exact`."""

    pattern: str
    exact: bool


def hyperscan_forms(expression: str, flags: int, *, ascii_only: bool) -> tuple[HyperscanForm, ...]:
    """The forms of an expression, best first: for texts of ASCII alone, or for all texts as UTF-8.

    A form finds every text that `re.search` finds. Hyperscan may still refuse each of them.
    """
    with warnings.catch_warnings(action="ignore"):
        parsed = _parser.parse(expression, flags)
    forms = []
    for loose in (False, True):
        writer = _Writer(parsed.state, ascii_only=ascii_only, loose=loose)
        pattern = writer.sequence(parsed, parsed.state.flags)
        forms.append(HyperscanForm(pattern, writer.exact and ascii_only))
    return tuple(dict.fromkeys(forms))


class _Writer:
    """Writes one parsed expression; `loose` ones leave out what hyperscan often refuses."""

    def __init__(self, state: Any, *, ascii_only: bool, loose: bool) -> None:
        self._state = state
        self._ascii_only = ascii_only
        self._loose = loose
        self.exact = True

    def sequence(self, nodes: Any, flags: int) -> str:
        return "".join(self._node(op, argument, flags) for op, argument in nodes)

    def _node(self, op: Any, argument: Any, flags: int) -> str:
        match str(op):
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return self._characters(op, argument, flags)
            case "AT":
                return self._place(str(argument), flags)
            case "BRANCH":
                return f"(?:{'|'.join(self.sequence(part, flags) for part in argument[1])})"
            case "SUBPATTERN":
                _, added, taken, part = argument
                return f"(?:{self.sequence(part, (flags | added) & ~taken)})"
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._write_repeat(argument, flags)
            case _:
                return self._widen(str(op), argument, flags)

    def _widen(self, op: str, argument: Any, flags: int) -> str:
        """What hyperscan has no word for: something that finds at least as much."""
        self.exact = False
        match op:
            case "POSSESSIVE_REPEAT":
                return self._write_repeat(argument, flags)
            case "ATOMIC_GROUP":
                return f"(?:{self.sequence(argument, flags)})"
            case "GROUPREF_EXISTS":
                _, yes, no = argument
                return f"(?:{self.sequence(yes, flags)}|{self.sequence(no, flags) if no else ''})"
            case "GROUPREF":
                return ".*"
            case "ASSERT" | "ASSERT_NOT":
                return ""
            case _:
                return ".*"

    def _write_repeat(self, argument: Any, flags: int) -> str:
        least, most, part = argument
        low, high = int(least), None if most is _constants.MAXREPEAT else int(most)
        if self._loose and max(low, high or 0) > _LONGEST_COUNT:
            self.exact = False
            low, high = min(low, _LONGEST_COUNT), None
        written = f"(?:{self.sequence(part, flags)})"
        if (low, high) in ((0, None), (1, None), (0, 1)):
            return written + {(0, None): "*", (1, None): "+", (0, 1): "?"}[low, high]
        return f"{written}{{{low},{'' if high is None else high}}}"

    def _place(self, place: str, flags: int) -> str:
        multiline = bool(flags & re.MULTILINE)
        if not self._loose:
            if place == "AT_BEGINNING_STRING" or (place == "AT_BEGINNING" and not multiline):
                return "^"
            if place == "AT_END_STRING":
                return r"\z"
            if place == "AT_END" and not multiline:
                return "$"
            if place == "AT_BOUNDARY" and self._ascii_only:
                return r"\b"
        self.exact = False
        return ""

    def _characters(self, op: Any, argument: Any, flags: int) -> str:
        if str(op) == "LITERAL" and argument >= 128 and not flags & re.IGNORECASE:
            return _NEVER_ASCII if self._ascii_only else f"\\x{{{argument:x}}}"
        if str(op) == "LITERAL" and not flags & re.IGNORECASE:
            return f"\\x{argument:02x}"
        node = op, tuple(argument) if isinstance(argument, list) else argument
        written = _class_of_ascii((node,), flags & _INLINE)
        if self._ascii_only:
            return f"[{written}]" if written else _NEVER_ASCII
        if not written or _reaches_beyond(str(op), argument, flags):
            written += _BEYOND
        return f"[{written}]"


@lru_cache(maxsize=4_096)
def _class_of_ascii(nodes: Any, flags: int) -> str:
    """The characters of ASCII that one node finds, as the inside of a class."""
    one = _parser.SubPattern(_parser.State(), list(nodes))
    fits = _compiler.compile(one, flags).fullmatch
    return _ranges([number for number in range(128) if fits(chr(number))])


def _reaches_beyond(op: str, argument: Any, flags: int) -> bool:
    """Whether characters beyond ASCII may belong to a class, as far as is easily told."""
    if op == "LITERAL":
        return bool(flags & re.IGNORECASE) and (argument >= 128 or chr(argument) in "iIsSkK")
    if op == "IN" and not flags & re.IGNORECASE:
        return any(
            str(kind) in ("NEGATE", "CATEGORY")
            or (str(kind) == "LITERAL" and what >= 128)
            or (str(kind) == "RANGE" and what[1] >= 128)
            for kind, what in argument
        )
    return True


def _ranges(numbers: list[int]) -> str:
    written = ""
    start = 0
    while start < len(numbers):
        stop = start
        while stop + 1 < len(numbers) and numbers[stop + 1] == numbers[stop] + 1:
            stop += 1
        written += f"\\x{numbers[start]:02x}" + (f"-\\x{numbers[stop]:02x}" if stop > start else "")
        start = stop + 1
    return written
