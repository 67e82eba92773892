"""The files that the demo takes, and the words about those that it does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "examples" / "security"))

from event_file import InputRefused, read_events, zstd

EVENTS = (
    '{"@timestamp": "2026-01-02T00:00:02Z", "text": "a\u2028b"}\n\nno event\n{"TimeCreated": "2026-01-02 00:00:01"}\n'
)


@pytest.mark.parametrize("name", ["events.jsonl", "events.jsonl.zst"])
def test_events_come_in_the_order_of_their_time_and_what_is_none_comes_first(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(zstd.compress(EVENTS.encode()) if name.endswith(".zst") else EVENTS.encode())
    first, second, third = (EVENTS.split("\n")[place] for place in (2, 3, 0))
    assert read_events(path) == [first, second, third]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("events.bin", bytes(range(256)), "is no UTF-8 text (byte 128). Give one JSON object per line."),
        ("events.jsonl", zstd.compress(EVENTS.encode()), "give it a name that ends with .zst"),
        ("events.jsonl.zst", b"no frame", "is no whole Zstandard file"),
        ("torn.jsonl.zst", zstd.compress(EVENTS.encode() * 50)[:-5], "is no whole Zstandard file"),
        (
            "events.csv",
            b"time,host\n2026-01-02,a\n",
            "is a JSON object; the first is 'time,host'. Give one",
        ),
        ("list.json", b"[1,\n2]\n", "is a JSON object; the first is '[1,'"),
        ("empty.jsonl", b"\n \n", "is empty"),
    ],
)
def test_a_file_without_events_is_refused_in_one_line(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputRefused, match=name) as refused:
        read_events(path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
