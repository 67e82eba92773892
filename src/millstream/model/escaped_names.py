"""Names of other protocols as names that RocketMQ takes: letters, digits, `_`, `-`, and `|XX` for every other byte."""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final

__all__ = ["escape_name"]

_ESCAPED: Final = re.compile(rb"[^A-Za-z0-9_-]")
_HASH_BYTES: Final = 20


@lru_cache(maxsize=4096)
def escape_name(name: str, max_characters: int) -> str:
    """The name with `|XX` (hexadecimal) for each byte of its UTF-8 that is no letter, digit, `_` or `-`.

    Longer than `max_characters`, it is the hash of the name instead: blake2b of 160 bits, 32 characters of base32.
    """
    escaped = _ESCAPED.sub(lambda found: b"|%02X" % found[0][0], name.encode()).decode()
    if len(escaped) <= max_characters:
        return escaped
    return base64.b32encode(blake2b(name.encode(), digest_size=_HASH_BYTES).digest()).decode().lower()
