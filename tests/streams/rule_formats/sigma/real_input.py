"""The real rules and events beside the project, which tests only read."""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from millstream.streams.rule_formats.sigma import read_rules
from millstream.streams.rules.imported_rules import ImportedRules

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SECURITY = Path(__file__).parents[4].parent / "shared" / "data" / "security"
EVENTS = SECURITY / "windows-events.jsonl.zst"
RULES = SECURITY / "sigma-windows-rules.tar.zst"

needs_real_input = pytest.mark.skipif(
    not (EVENTS.exists() and RULES.exists()), reason=f"the real input is not there: {EVENTS.name}, {RULES.name}"
)


def event_lines() -> Iterator[bytes]:
    """The events, one JSON text each."""
    with zstd.open(EVENTS, "rb") as lines:
        yield from lines


@cache
def imported() -> ImportedRules:
    """All real rules, read from an unpacked copy that is gone again."""
    with TemporaryDirectory() as directory:
        with tarfile.open(fileobj=io.BytesIO(zstd.decompress(RULES.read_bytes()))) as packed:
            packed.extractall(directory, filter="data")
        return read_rules(directory)
