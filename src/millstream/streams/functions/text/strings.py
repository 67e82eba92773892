"""Text functions: positions and words, entropy, hash codes, and character sets."""

from __future__ import annotations

import math
import re
from collections import Counter

from millstream.model.filter import java_hash_code

__all__ = ["capitalise", "decode_bytes", "encode_text", "entropy", "hash_code", "nth_position"]


def entropy(text: str) -> float:
    """Shannon's entropy in bits a character; 0 for a blank text."""
    shares = (count / len(text) for count in Counter(text).values())
    return abs(sum((share * math.log2(share) for share in shares), 0.0))


_INT_LIMIT = 2**31


def hash_code(text: str) -> int:
    """Java's hash code without its sign: Flink takes `Math.abs` of it, for which the smallest INT has no partner."""
    code = abs(java_hash_code(text))
    return -code if code == _INT_LIMIT else code


_CODECS = {
    "US-ASCII": "ascii",
    "ISO-8859-1": "latin-1",
    "UTF-8": "utf-8",
    "UTF-16BE": "utf-16-be",
    "UTF-16LE": "utf-16-le",
    "UTF-16": "utf-16",
}
_MARK = b"\xfe\xff"


def encode_text(text: str, charset: str) -> bytes | None:
    """The bytes of a text; characters that the set lacks become `?`, an unknown set gives None."""
    codec = _CODECS.get(charset.upper())
    if codec is None:
        return None
    # Java writes UTF-16 with a mark and the high byte first.
    return _MARK + text.encode("utf-16-be") if codec == "utf-16" else text.encode(codec, "replace")


def decode_bytes(data: bytes, charset: str) -> str | None:
    """The text of bytes; wrong ones become U+FFFD, an unknown set gives None."""
    codec = _CODECS.get(charset.upper())
    if codec is None:
        return None
    if codec == "utf-16" and data[:2] not in (_MARK, _MARK[::-1]):
        codec = "utf-16-be"
    return data.decode(codec, "replace")


_WORD = re.compile("[0-9A-Za-z]+")


def capitalise(text: str) -> str:
    """Each word with a large first letter; words are runs of ASCII letters and digits, and only those change case."""
    return _WORD.sub(lambda word: word[0].capitalize(), text)


def nth_position(text: str, part: str, start: int, occurrence: int) -> int | None:
    """The place (from 1) of the n-th occurrence from `start` on, 0 if there is none.

    A negative start counts from the end and searches backward; 0 finds nothing. None for an occurrence below 1.
    """
    if occurrence < 1:
        return None
    if start == 0 or abs(start) > len(text) + 1:
        return 0
    place = start - 2 if start > 0 else len(text) + start + 1
    for _ in range(occurrence):
        if start > 0:
            place = text.find(part, place + 1)
        elif place > 0:
            place = text.rfind(part, 0, place - 1 + len(part))
        else:
            return 0
        if place < 0:
            return 0
    return place + 1
