"""Searches literals in the raw JSON of events before parsing it.

Words that a text must have for a regular expression to be found in it.
"""

from __future__ import annotations

import contextlib
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final

import numpy as np

from millstream.streams.rules.conditions import Op, Operand, Predicate
from millstream.streams.rules.engines.databases import HAS_HYPERSCAN, PatternDatabase
from millstream.streams.rules.event_rows import Places, Raw, Rows

__all__ = ["RawTextFilter", "needed_words", "raw_text_filter"]

_LEAST_WORD_CHARACTERS: Final = 4
"""Shorter words are in so many texts that looking for them saves nothing."""

_MOST_WORDS: Final = 64

_LETTERS: Final = re.compile("[a-df-z]")
"""What no number has: words of digits alone may be spelled in many ways."""

Words = frozenset[str]


def needed_words(expression: str, flags: int) -> Words:
    """Words one of which every text has in which `re.search` finds the expression, whatever the case of letters.

    They are of printable ASCII, in lower case, and have a letter. Empty where no such words are known. Letters beyond
    ASCII that count as one of ASCII where case does not matter (K, ſ, ı, İ) are not thought of.
    """
    with warnings.catch_warnings(action="ignore"):
        parsed = _parser.parse(expression, flags)
    return _of_sequence(parsed)


def _of_sequence(parsed: Any) -> Words:
    """The best words of the parts that must all be found one behind the other."""
    best: Words = frozenset()
    run: list[str] = []
    for operation, argument in parsed:
        if operation is _constants.LITERAL and 0x20 <= argument < 0x7F:
            run.append(chr(argument).lower())
            continue
        best = _better(best, _of_run(run))
        run = []
        best = _better(best, _of_part(operation, argument))
    return _better(best, _of_run(run))


def _of_run(run: list[str]) -> Words:
    word = "".join(run)
    return frozenset({word}) if len(word) >= _LEAST_WORD_CHARACTERS and _LETTERS.search(word) else frozenset()


def _of_part(operation: Any, argument: Any) -> Words:
    match operation:
        case _constants.SUBPATTERN:
            return _of_sequence(argument[3])
        case _constants.ATOMIC_GROUP:
            return _of_sequence(argument)
        case _constants.MAX_REPEAT | _constants.MIN_REPEAT | _constants.POSSESSIVE_REPEAT:
            least, _most, repeated = argument
            return _of_sequence(repeated) if least else frozenset()
        case _constants.BRANCH:
            branches = [_of_sequence(branch) for branch in argument[1]]
            return frozenset().union(*branches) if all(branches) else frozenset()
        case _:
            return frozenset()


def _better(one: Words, other: Words) -> Words:
    """Those whose shortest word is longer; what is no choice at all loses."""
    if not other or len(other) > _MOST_WORDS:
        return one
    return other if not one or min(map(len, other)) > min(map(len, one)) else one


_LEAST_CHARACTERS: Final = 3
"""Of a word that is looked for anywhere in an event."""

_OF_NUMBERS: Final = re.compile(r"[-+0-9eE]*(\.[-+0-9eE]*)?", re.ASCII)
"""Such a word may be part of a number, which a value's text may spell otherwise than the JSON did."""

_DIGIT: Final = re.compile("[0-9]")
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,15}", re.ASCII)

_BEHIND_LETTERS: Final = 0x20000
"""Unicode has letters of two cases below this."""

_HIDDEN: Final = (
    *(b"\\u%s" % number for number in (b"212a", b"0130", b"0131", b"017f")),
    *map(str.encode, "\u212a\u0130\u0131\u017f"),
)
"""Where JSON has a letter whose other case is a letter of ASCII."""

_SPELLED: Final = [b"\\x%02x" % byte for byte in range(256)]
"""Bytes as our expressions have them."""

_BYTE: Final = re.compile(rb"\\x([0-9a-f]{2})")
"""A byte in an expression of ours."""

_QUOTE: Final = ord('"')
_BACKSLASH: Final = ord("\\")
_FIRST_SPELLED, _BEHIND_ASCII = 0x20, 0x80

_SPACED: Final = (rb"\"[ \t\r\n]{2,}:", rb"\"[ \t\r\n]:", rb"\":[\t\r\n]", rb"\": [ \t\r\n]")
"""Where a key and its value are further apart than by a colon, or by a colon and a blank."""


class RawTextFilter:
    """Tells the events whose JSON one of some expressions is found in; of all others, no atom is true."""

    def __init__(self, patterns: Iterable[bytes]) -> None:
        self._database = PatternDatabase(sorted(patterns), caseless=True)
        self.database_bytes = self._database.size_bytes

    def rows(self, raw: Sequence[Raw]) -> Rows:
        """The numbers of these events."""
        return np.array(self._database.any_in(raw), dtype=np.int64)


def raw_text_filter(atoms: Sequence[Predicate], places: Places) -> RawTextFilter | None:
    """The filter for atoms about whole events, and about fields in events that hold them at the top.

    None where one of the atoms may be true of an event whose JSON shows nothing of it.
    """
    if not HAS_HYPERSCAN:
        return None
    patterns = set(map(_exactly, _HIDDEN))
    keys: dict[str, None] = {}
    for predicate in atoms:
        found = _patterns(predicate, places)
        if found is None:
            return None
        patterns.update(found)
        keys.update(dict.fromkeys(places.keys(predicate.field)))
    patterns.update(_of_containers(keys))
    if any("/" in str(operand) for predicate in atoms for operand in predicate.operands):
        # JSON may have a backslash before it.
        patterns.add(_exactly(rb"\/"))
    patterns.update(_hidden_letters(patterns))
    return RawTextFilter(patterns)


def _hidden_letters(patterns: Iterable[bytes]) -> Iterator[bytes]:
    """Where JSON spells by its number a character that one of the expressions looks for.

    Only these: some writers spell the likes of < and ' so in every event.
    """
    letters: set[int] = set()
    for pattern in patterns:
        found = [int(digits, 16) for digits in _BYTE.findall(pattern)]
        # A quote that is no border of a text has a backslash before it.
        letters.update(one for before, one in pairwise([0, *found]) if one != _QUOTE or before == _BACKSLASH)
        if len(found) * len(rb"\x00") < len(pattern):
            letters.update(b"0123456789-")
    spelled = {chr(one) for one in letters if _FIRST_SPELLED <= one < _BEHIND_ASCII}
    for letter in sorted({other for one in spelled for other in (one.lower(), one.upper())}):
        yield _exactly(b"\\u%04x" % ord(letter))


def _of_containers(keys: Iterable[str]) -> Iterator[bytes]:
    """Where one of the keys holds an array or an object: their texts are spelled again."""
    for number, key in enumerate(keys):
        if number == 0:
            yield from _SPACED
        yield from (_exactly(_in_json(key, b'"', b'":' + more)) for more in (b"[", b"{", b" [", b" {"))


def _patterns(predicate: Predicate, places: Places) -> list[bytes] | None:
    """Expressions, one of which is found in the JSON of an event of which the atom is true."""
    is_whole = places.is_whole_event(predicate.field)
    if (
        predicate.steps
        or predicate.absent is True
        or not predicate.operands
        or (places.has_whole_event(predicate.field) and not is_whole)
    ):
        return None
    if predicate.op is Op.MATCHES:
        words = needed_words(str(predicate.operands[0]), int(re.IGNORECASE) if predicate.caseless else 0)
        return _of_words(predicate, words) if words else None
    if predicate.op is Op.CONTAINS and isinstance(predicate.operands[0], str):
        is_common = len(predicate.operands[0]) < _LEAST_CHARACTERS and predicate.operands[0].isascii()
        return None if is_common else _of_words(predicate, predicate.operands)
    if is_whole or predicate.op not in _BORDERS:
        return None
    found: list[bytes] = []
    for operand in predicate.operands:
        if predicate.op is Op.IN and type(operand) in (int, str) and _WHOLE_NUMBER.fullmatch(str(operand)):
            more: Iterable[bytes] | None = _of_number(abs(int(operand)), places.keys(predicate.field))
        elif predicate.op is Op.IN and operand == "":
            more = [_exactly(b'""')]
        else:
            more = _word(predicate, operand, *_BORDERS[predicate.op]) if isinstance(operand, str) else None
        if more is None:
            return None
        found += more
    return found


def _of_words(predicate: Predicate, words: Iterable[Operand]) -> list[bytes] | None:
    found = [_word(predicate, str(word)) for word in words]
    return None if None in found else [one for some in found for one in some or ()]


_BORDERS: Final = {Op.STARTS: (b'"', b""), Op.ENDS: (b"", b'"'), Op.IN: (b'"', b'"')}
"""What stands before and behind the texts of an atom's operands in JSON."""


def _word(predicate: Predicate, word: str, before: bytes = b"", behind: bytes = b"") -> list[bytes] | None:
    """What JSON has wherever a value's text has the word; None where that cannot be told."""
    word = word.lower() if predicate.caseless else word
    if not word.isascii():
        return list(map(_exactly, _beyond_ascii(word)))
    # A number that is too large has the text null.
    may_be_number = _OF_NUMBERS.fullmatch(word) and (predicate.op is not Op.IN or _DIGIT.search(word))
    if not word.isprintable() or may_be_number or word.lower() in "null":
        return None
    if word.lower() in "true" or word.lower() in "false":
        # Truth values stand in JSON without quotes.
        before = behind = b""
    return [_exactly(_in_json(word, before, behind))]


def _beyond_ascii(word: str) -> Iterator[bytes]:
    """How JSON spells the first character beyond ASCII, in whatever case."""
    first = next(one for one in word if not one.isascii())
    for one in {first, *_larger_letters().get(first, ())}:
        # Half of a pair has no UTF-8: JSON has it as an escape alone.
        with contextlib.suppress(UnicodeEncodeError):
            yield one.encode()
        yield json.dumps(one)[1:-1].encode()


@cache
def _larger_letters() -> dict[str, list[str]]:
    """The characters that become something else in lower case, by what each of its characters beyond ASCII is."""
    letters: dict[str, list[str]] = {"ς": ["Σ"]}
    for one in map(chr, range(0x80, _BEHIND_LETTERS)):
        lower = one.lower()
        if lower != one:
            for part in lower:
                letters.setdefault(part, []).append(one)
    return letters


def _of_number(number: int, keys: Sequence[str]) -> Iterator[bytes]:
    """A whole number among the values of `keys`, alone or as text, and numbers there that are spelled in other ways."""
    for key in keys:
        place = _exactly(_in_json(key, b'"', b'":')) + rb"\s?\"?-?"
        yield from (rb"%s0*%d\"?[\s,}]" % (place, number), rb"%s[0-9]*[^0-9\"\s,}\-]" % place)


def _in_json(word: str, before: bytes = b"", behind: bytes = b"") -> bytes:
    return before + json.dumps(word)[1:-1].encode() + behind


def _exactly(text: bytes) -> bytes:
    return b"".join(map(_SPELLED.__getitem__, text))
