"""LIKE, SIMILAR TO and REGEXP as predicates, with Java's regular expressions in Python's syntax."""

from __future__ import annotations

import re
from typing import Final

from millstream.streams.functions.text.patterns import ANY_CHARACTER, ANY_TEXT, like_parts, similar_expression
from millstream.streams.rules.conditions import Condition, Op, Truth, negate
from millstream.streams.rules_sql.operands import InexpressibleCondition, TextOperand

__all__ = ["CannotBeRewritten", "like", "python_pattern", "regexp", "similar"]


MAX_PATTERN_CHARACTERS: Final = 10_000
"""Characters of a pattern that is rewritten, at most."""

MAX_REPEATS: Final = 1_000
"""The largest number in {n,m} that is taken; engines of automata grow with it."""

MAX_DEPTH: Final = 50
"""Groups inside each other, at most."""

_CLASSES: dict[str, str] = {"d": "0-9", "w": "a-zA-Z_0-9", "s": r" \t\n\x0b\f\r"}
_CONTROLS: dict[str, str] = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\x07", "e": "\x1b"}
_HEXADECIMAL: dict[str, int] = {"x": 2, "u": 4}
_LINE_ENDS = "\\n\\r\\x85\u2028\u2029"
_NO_LINE_END = f"[^{_LINE_ENDS}]"
_LINE_END = rf"(?:\r\n|[{_LINE_ENDS}])?\Z"
_SURE_CHARACTER = re.compile(r"(?:[^\\\[\](){}.*+?|\r]|\\[^\w\r]|\[(?!\^)(?:[^\r\\\]]|\\[^\w\r])*\])\+?")
_FLAGS = re.compile(r"\(\?([is]+)\)")
_COUNTS = re.compile(r"\{([0-9]{1,4})(?:(,)([0-9]{1,4})?)?\}")
_GROUPS = re.compile(r"\?(?:<([A-Za-z][A-Za-z0-9]*)>|:|(s):)")


class CannotBeRewritten(ValueError):
    """Why a pattern is not taken, in a few words."""


def python_pattern(pattern: str) -> str:
    """The same pattern for Python. Raises CannotBeRewritten."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise CannotBeRewritten(f"it has more than {MAX_PATTERN_CHARACTERS} characters")
    flags = _FLAGS.match(pattern)
    given = "" if flags is None else flags[1]
    rewriting = _Rewriting(pattern, 0 if flags is None else flags.end(), caseless="i" in given, any_dot="s" in given)
    return rewriting.whole()


class _Rewriting:
    """One pass over a pattern from `place` on."""

    def __init__(self, pattern: str, place: int, *, caseless: bool, any_dot: bool) -> None:
        self._text = pattern
        self._place = place
        self._caseless = caseless
        self._any_dot = any_dot
        self._depth = 0
        self._names: set[str] = set()

    def whole(self) -> str:
        found = self._alternatives()
        if self._place < len(self._text):
            raise CannotBeRewritten("it closes a group that was not opened")
        return found

    def _peek(self) -> str:
        return self._text[self._place : self._place + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise CannotBeRewritten("it ends too early")
        self._place += 1
        return character

    def _alternatives(self) -> str:
        parts: list[str] = []
        last = ""
        while (character := self._peek()) and character != ")":
            if character == "|":
                self._place += 1
                parts.append("|")
                last = ""
                continue
            item, repeats = self._item(last)
            parts.append(item + (self._rewrite_repeat() if repeats else ""))
            last = parts[-1]
        return "".join(parts)

    def _item(self, last: str) -> tuple[str, bool]:
        """One item, and whether it may be repeated."""
        character = self._next()
        match character:
            case "(":
                return self._group(), True
            case "[":
                return self._character_class(), True
            case ".":
                return ("(?s:.)" if self._any_dot else _NO_LINE_END), True
            case "^":
                return r"\A", False
            case "$":
                return self._end(last), False
            case "\\":
                return self._rewrite_escape(last)
            case "*" | "+" | "?" | "{":
                raise CannotBeRewritten(f"{character} stands where nothing can be repeated")
            case _:
                return self._plain(character), True

    def _plain(self, character: str) -> str:
        both = {character.lower(), character.upper()} if self._caseless and character.isascii() else {character}
        return re.escape(character) if len(both) == 1 else f"[{''.join(sorted(both))}]"

    def _end(self, last: str) -> str:
        # Between the two characters of a line end there is no end for Java: what is before it must not be the first.
        if self._depth or self._peek() not in ("", "|") or not _SURE_CHARACTER.fullmatch(last):
            raise CannotBeRewritten("what it means by its $ is not the same everywhere")
        return _LINE_END

    def _group(self) -> str:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CannotBeRewritten(f"it has groups more than {MAX_DEPTH} deep")
        outer = self._any_dot
        if self._peek() == "?":
            kind = _GROUPS.match(self._text, self._place)
            if kind is None:
                raise CannotBeRewritten("it looks around itself, or sets a flag within")
            self._place = kind.end()
            if kind[1] is not None and kind[1] in self._names:
                raise CannotBeRewritten(f"it has two groups of the name {kind[1]}")
            self._names.add(kind[1] or "")
            self._any_dot = outer or kind[2] is not None
        inner = self._alternatives()
        if self._next() != ")":
            raise CannotBeRewritten("a group is not closed")
        self._any_dot = outer
        self._depth -= 1
        return f"(?:{inner})"

    def _rewrite_repeat(self) -> str:
        character = self._peek()
        if character in ("*", "+", "?") and character:
            self._place += 1
            found = character
        elif character == "{":
            found = self._counts()
        else:
            return ""
        following = self._peek()
        if following == "?":
            self._place += 1
        elif following in ("+", "*", "{") and following:
            raise CannotBeRewritten("it repeats what is repeated, or gives nothing back")
        return found

    def _counts(self) -> str:
        counts = _COUNTS.match(self._text, self._place)
        if counts is None:
            raise CannotBeRewritten("a { does not begin a number of times")
        self._place = counts.end()
        least, most = int(counts[1]), int(counts[3] or counts[1])
        if most < least or most > MAX_REPEATS:
            raise CannotBeRewritten(f"it repeats more than {MAX_REPEATS} times, or fewer times than at least")
        return counts[0]

    def _rewrite_escape(self, last: str) -> tuple[str, bool]:
        character = self._next()
        if character in _CLASSES:
            return f"[{_CLASSES[character]}]", True
        if character.lower() in _CLASSES:
            return f"[^{_CLASSES[character.lower()]}]", True
        if character == "A":
            return r"\A", False
        if character == "z":
            return r"\Z", False
        if character == "Z":
            return self._end(last), False
        if character == "Q":
            return self._rewrite_quotation(), False
        return self._plain(self._single(character)), True

    def _single(self, escaped: str) -> str:
        """The one character that an escape stands for."""
        if escaped in _CONTROLS:
            return _CONTROLS[escaped]
        if escaped in _HEXADECIMAL:
            digits = self._text[self._place : self._place + _HEXADECIMAL[escaped]]
            if not re.fullmatch(rf"[0-9a-fA-F]{{{_HEXADECIMAL[escaped]}}}", digits) or _is_half(int(digits, 16)):
                raise CannotBeRewritten(f"\\{escaped} has no plain character")
            self._place += len(digits)
            return chr(int(digits, 16))
        if escaped.isalnum():
            raise CannotBeRewritten(f"\\{escaped} is not the same everywhere")
        return escaped

    def _rewrite_quotation(self) -> str:
        end = self._text.find("\\E", self._place)
        text = self._text[self._place : end if end >= 0 else None]
        self._place = len(self._text) if end < 0 else end + len("\\E")
        if self._peek() in ("*", "+", "?", "{") and self._peek():
            raise CannotBeRewritten("it repeats a quotation")
        return "".join(map(self._plain, text))

    def _character_class(self) -> str:
        negated = self._peek() == "^"
        self._place += negated
        parts: list[str] = []
        while (character := self._next()) != "]":
            if character == "\\" and self._peek() in _CLASSES and self._peek():
                parts.append(_CLASSES[self._next()])
                if self._peek() == "-":
                    raise CannotBeRewritten("a range begins at a class")
                continue
            parts.append(self._range(self._of_class(character)))
        if not parts:
            raise CannotBeRewritten("it has an empty class of characters")
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def _of_class(self, character: str) -> str:
        if character == "\\":
            return self._single(self._next())
        if character in "[&^-" and not (character == "-" and self._peek() == "]"):
            raise CannotBeRewritten(f"{character} within a class of characters is not the same everywhere")
        return character

    def _range(self, first: str) -> str:
        if self._peek() != "-" or self._text[self._place + 1 : self._place + 2] == "]":
            return self._both_cases(first, first)
        self._place += 1
        last = self._of_class(self._next())
        if last < first:
            raise CannotBeRewritten("a range ends before it begins")
        return self._both_cases(first, last)

    def _both_cases(self, first: str, last: str) -> str:
        shown = _in_class(first) if first == last else f"{_in_class(first)}-{_in_class(last)}"
        if not self._caseless:
            return shown
        letters = [chr(code) for code in range(ord(first), min(ord(last), 0x7F) + 1) if chr(code).isalpha()]
        return shown + "".join(sorted({letter.swapcase() for letter in letters}))


def _is_half(code: int) -> bool:
    """Whether the number is half of a character in UTF-16."""
    return 0xD800 <= code < 0xE000


def _in_class(character: str) -> str:
    return f"\\{character}" if character in "\\]^-[&~|" else character


_WILD = {ANY_CHARACTER: "(?s:.)", ANY_TEXT: "(?s:.*)"}


def like(operand: TextOperand, pattern: str, escape: str | None) -> Condition:
    """The text LIKE the pattern."""
    given = like_parts(pattern, escape)
    if given is None:
        return Truth(None)
    parts = [one for place, one in enumerate(given) if one is not ANY_TEXT or given[place - 1 : place] != [ANY_TEXT]]
    match parts:
        case []:
            return operand.compare("=", "")
        case [str(text)]:
            return operand.compare("=", text)
        case [None]:
            return negate(operand.never())
        case [None, str(text), None]:
            return operand.test(Op.CONTAINS, text)
        case [str(text), None]:
            return operand.test(Op.STARTS, text)
        case [None, str(text)]:
            return operand.test(Op.ENDS, text)
    return operand.match_pattern(rf"\A{''.join(_part(one) for one in parts)}\Z")


def similar(operand: TextOperand, pattern: str, escape: str | None) -> Condition:
    """The text SIMILAR TO the pattern. Raises CannotBeSaid."""
    return _find_pattern(operand, similar_expression(pattern, escape))


def regexp(operand: TextOperand, pattern: str) -> Condition:
    """REGEXP, which finds a blank pattern nowhere. Raises CannotBeSaid."""
    return _find_pattern(operand, pattern) if pattern else operand.never()


def _find_pattern(operand: TextOperand, pattern: str) -> Condition:
    try:
        rewritten = python_pattern(pattern)
    except CannotBeRewritten as refusal:
        raise InexpressibleCondition(f"of its regular expression: {refusal}") from None
    try:
        re.compile(rewritten)
    except (re.error, OverflowError, RecursionError):
        raise InexpressibleCondition("its regular expression is none of Python") from None
    return operand.match_pattern(rewritten)


def _part(part: str | int | None) -> str:
    return re.escape(part) if isinstance(part, str) else _WILD[part]
