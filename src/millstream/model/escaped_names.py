"""Escapes any text as a valid name of a topic or group.

Letters, digits, `-` and `_` stay; every other byte of the UTF-8 form becomes `|` and two upper-case hex digits. A name
that would be longer than the limit becomes `|h` and a hash of 32 characters, which nothing else is escaped to: behind
`|` no escape has a lower-case letter.
"""

from __future__ import annotations

import re
from base64 import b32encode
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from millstream.model.topic import MAX_TOPIC_CHARACTERS

__all__ = ["HASH_CHARACTERS", "escape_name", "hash_name", "unescape_name"]

HASH_CHARACTERS: Final = 32
"""Characters of a hash: blake2b of 160 bits in base32."""

_HASH_BYTES: Final = 20
_KEPT_NAMES: Final = 4096
"""A name is wanted several times in a row: when a client comes, a message of it is stored, it goes."""
_OTHER: Final = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPE: Final = re.compile(rb"\|([0-9A-F]{2})")
_LEGAL: Final = re.compile(r"(?:[A-Za-z0-9_-]|\|[0-9A-F]{2})*")


@lru_cache(maxsize=_KEPT_NAMES)
def hash_name(*parts: str) -> str:
    """32 characters a-z and 2-7 for the parts, which are distinguished: (`ab`, `c`) is not (`a`, `bc`)."""
    digest = blake2b(digest_size=_HASH_BYTES)
    for part in parts:
        text = part.encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "big") + text)
    return b32encode(digest.digest()).decode().lower()


@lru_cache(maxsize=_KEPT_NAMES)
def escape_name(name: str, max_characters: int = MAX_TOPIC_CHARACTERS) -> str:
    """A legal name for the text, another one for any other text; of `max_characters` (34 or more) at most."""
    escaped = _OTHER.sub(lambda found: b"|%02X" % found[0][0], name.encode("utf-8", "surrogatepass")).decode()
    return escaped if len(escaped) <= max_characters else "|h" + hash_name(name)


def unescape_name(escaped: str) -> str | None:
    """The text of an escaped name; None where it is a hash, or nothing that `escape_name` gives."""
    if not _LEGAL.fullmatch(escaped):
        return None
    text = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), escaped.encode())
    try:
        name = text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return name if escape_name(name, len(escaped)) == escaped else None
