"""Text as bytes and back, in the character sets that Flink names."""

from __future__ import annotations

__all__ = ["decode_bytes", "encode_text"]

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
