"""Events from a file: one JSON object per line, in the order of their event time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["InputRefused", "read_events"]

_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_SHOWN_CHARACTERS = 60


class InputRefused(Exception):
    """The file has no events that the demo could send; the words say why and what to give."""


def read_events(path: Path) -> list[str]:
    """The lines of the file, sorted by event time. Raises InputRefused where none of them is an event."""
    lines = [line for line in _lines(path) if line.strip()]
    if not lines:
        raise InputRefused(f"{path} is empty: give one JSON object per line.")
    timed = [(_event_time(line), line) for line in lines]
    if all(time is None for time, _ in timed):
        raise InputRefused(
            f"No line of {path} is a JSON object; the first is {lines[0][:_SHOWN_CHARACTERS]!r}. "
            "Give one JSON object per line."
        )
    return [line for _, line in sorted(timed, key=lambda one: one[0] or "")]


def _lines(path: Path) -> list[str]:
    try:
        content = path.read_bytes()
        if path.suffix == ".zst":
            content = zstd.decompress(content)
    except OSError as error:
        raise InputRefused(f"{path} cannot be read: {error.strerror}.") from None
    except zstd.ZstdError:
        raise InputRefused(f"{path} is no whole Zstandard file: pack it again, or give the plain .jsonl.") from None
    try:
        content.decode()
    except UnicodeDecodeError as error:
        remedy = "Give one JSON object per line."
        if content.startswith(_ZSTANDARD):
            remedy = "It is packed by Zstandard: give it a name that ends with .zst."
        raise InputRefused(f"{path} is no UTF-8 text (byte {error.start:,}). {remedy}") from None
    # Only line feeds and carriage returns end lines of bytes; text has more that do, which JSON may hold.
    return [line.decode() for line in content.splitlines()]


def _event_time(line: str) -> str | None:
    """The event's time as text that sorts by time; blank (first) where it has none, None where it is no event."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    if not isinstance(event, dict):
        return None
    return str(event.get("@timestamp") or event.get("TimeCreated") or "")[:23].replace("T", " ")
