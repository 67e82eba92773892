"""Lines are the same wherever the pieces of a file that were read begin and end."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.ingest.files.lines import LineCutter, Lines, MultilineJoiner, MultilineRule, TextForm

UTF_8 = TextForm.of("utf-8", b"")


def cut(cutter: LineCutter, pieces: list[bytes]) -> Lines:
    found = Lines()
    for lines in [*(cutter.feed(piece) for piece in pieces), cutter.end()]:
        for place, (text, size) in enumerate(zip(lines.texts, lines.sizes, strict=True)):
            found.add(text, size, lines.whole.get(place))
    return found


def pieces_of(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[begin:end] for begin, end in zip([0, *ends], [*ends, len(data)], strict=True)]


texts = st.lists(st.text(alphabet="ab\u00e4\u0a0a\u4e0a\U0001f600", max_size=12), max_size=8)
places = st.lists(st.integers(0, 500), max_size=12)


@given(texts, places, st.booleans())
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le"])
def test_pieces_of_a_file_give_its_lines_in_utf_8(
    encoding: str, lines: list[str], places: list[int], has_end: bool
) -> None:
    text = "\n".join(lines) + "\n" * has_end
    data = text.encode(encoding)
    found = cut(LineCutter(TextForm.of(encoding, b"")), pieces_of(data, places))
    expected = text.split("\n")
    assert [one.decode() for one in found.texts] == (expected if expected[-1] else expected[:-1])
    assert sum(found.sizes) == len(data)


@given(st.lists(st.binary(max_size=40).map(lambda one: one.replace(b"\n", b"-").replace(b"\r", b"-"))), places)
def test_a_line_over_the_limit_is_cut_and_its_length_told_however_it_was_read(
    lines: list[bytes], places: list[int]
) -> None:
    data = b"".join(line + b"\n" for line in lines)
    found = cut(LineCutter(UTF_8, max_bytes=16, at_start=False), pieces_of(data, places))
    assert found.texts == [line[:16] for line in lines]
    assert found.whole == {place: len(line) for place, line in enumerate(lines) if len(line) > 16}
    assert sum(found.sizes) == len(data)


@given(places)
def test_long_lines_of_wide_characters_are_cut_between_characters(places: list[int]) -> None:
    data = ("\u0a0a" * 50 + "\nshort\n").encode("utf-16-le")
    found = cut(LineCutter(TextForm.of("utf-16-le", b""), max_bytes=21), pieces_of(data, places))
    assert [text.decode() for text in found.texts] == ["\u0a0a" * 10, "short"]
    assert found.whole == {0: 100}


def test_the_mark_of_a_byte_order_is_no_part_of_the_first_line_and_says_the_order() -> None:
    for encoding, mark in (
        ("utf-16", codecs.BOM_UTF16_BE),
        ("utf-16", codecs.BOM_UTF16_LE),
        ("utf-8", codecs.BOM_UTF8),
    ):
        name = {codecs.BOM_UTF16_BE: "utf-16-be", codecs.BOM_UTF16_LE: "utf-16-le"}.get(mark, "utf-8")
        data = mark + "a\nb\n".encode(name)
        assert cut(LineCutter(TextForm.of(encoding, data[:4])), [data]).texts == [b"a", b"b"]


def test_carriage_returns_before_line_feeds_are_no_part_of_a_line() -> None:
    assert cut(LineCutter(UTF_8), [b"a\r\nb\rc\r\nd"]).texts == [b"a", b"b\rc", b"d"]


def test_text_of_other_encodings_becomes_utf_8_and_what_cannot_be_read_a_replacement() -> None:
    form = TextForm.of("cp1252", b"")
    assert cut(LineCutter(form), ["Gr\u00fc\u00dfe \u20ac\n".encode("cp1252") + b"\x81\n"]).texts == [
        "Gr\u00fc\u00dfe \u20ac".encode(),
        "\ufffd".encode(),
    ]


TRACE = b"1 start\n  at a\n\n  at b\n2 next\n3 last\n"


def joined(
    joining: MultilineRule | None, data: bytes, places: list[int], limit: int = 1000
) -> list[tuple[bytes, int | None]]:
    cutter, joiner = LineCutter(UTF_8), MultilineJoiner(joining, max_bytes=limit)
    events, done = [], 0
    for one in [*(joiner.feed(cutter.feed(piece)) for piece in pieces_of(data, places)), joiner.end()]:
        events += [(body, one.whole.get(place)) for place, body in enumerate(one.bodies)]
        done += one.size_bytes
    assert done == len(data)
    return events


@given(places)
def test_lines_are_joined_to_events_by_how_they_begin_or_go_on(places: list[int]) -> None:
    import re

    expected = [(b"1 start\n  at a\n\n  at b", None), (b"2 next", None), (b"3 last", None)]
    assert joined(MultilineRule(first=re.compile(rb"^\d")), TRACE, places) == expected
    assert joined(MultilineRule(more=re.compile(rb"^(\s|$)")), TRACE, places) == expected


@given(places)
def test_a_joined_event_over_the_limit_is_cut_and_its_length_told(places: list[int]) -> None:
    import re

    assert joined(MultilineRule(first=re.compile(rb"^\d")), TRACE, places, limit=10) == [
        (b"1 start\n  ", 22),
        (b"2 next", None),
        (b"3 last", None),
    ]


def test_blank_lines_are_no_events() -> None:
    assert joined(None, b"\na\n\r\n\nb\n", []) == [(b"a", None), (b"b", None)]
