"""Messages of a stream are the same wherever it is cut, in both framings and in any mixture."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.ingest.syslog.framing import FrameCutter, SyslogFrame

bodies = st.binary(max_size=40).map(lambda one: b"<13>" + one.replace(b"\n", b".").rstrip(b"\r\n\0"))
places = st.lists(st.integers(0, 2000), max_size=20)


def frames_of(data: bytes, places: list[int], max_bytes: int = 1000) -> list[SyslogFrame]:
    ends = sorted(place % (len(data) + 1) for place in places)
    cutter = FrameCutter(max_bytes)
    pieces = [data[begin:end] for begin, end in zip([0, *ends], [*ends, len(data)], strict=True)]
    return [frame for piece in pieces for frame in cutter.feed(piece)]


@given(st.lists(st.tuples(bodies, st.sampled_from(["count", "line", "line with nul", "count and line"]))), places)
def test_messages_in_any_framing_are_cut_out_of_any_pieces(sent: list[tuple[bytes, str]], places: list[int]) -> None:
    forms = {
        "count": lambda body: b"%d %b" % (len(body), body),
        "line": lambda body: body + b"\n",
        "line with nul": lambda body: body + b"\0\r\n",
        "count and line": lambda body: b"%d %b\n" % (len(body), body),
    }
    data = b"".join(forms[form](body) for body, form in sent)
    assert frames_of(data, places) == [SyslogFrame(body) for body, _ in sent]


@given(places)
def test_messages_over_the_limit_are_cut_and_their_lengths_told(places: list[int]) -> None:
    long = b"<13>" + b"x" * 96
    data = b"100 " + long + b"5 <13>a" + long + b"\n" + b"<13>b\n"
    expected = [SyslogFrame(long[:20], 100), SyslogFrame(b"<13>a"), SyslogFrame(long[:20], 100), SyslogFrame(b"<13>b")]
    assert frames_of(data, places, max_bytes=20) == expected


@given(places)
def test_lines_that_begin_with_digits_are_no_counts_without_a_priority_behind_them(places: list[int]) -> None:
    data = b"123 apples\n12345678901 <13>x\n0 <13>y\n1x\n"
    assert [frame.body for frame in frames_of(data, places)] == [b"123 apples", b"12345678901 <13>x", b"0 <13>y", b"1x"]


@given(st.binary(max_size=200), places)
def test_any_bytes_give_the_same_messages_however_they_come_and_never_raise(data: bytes, places: list[int]) -> None:
    assert frames_of(data, places, max_bytes=16) == frames_of(data, [], max_bytes=16)


@pytest.mark.parametrize(
    ("data", "left"),
    [
        (b"<13>no end", SyslogFrame(b"<13>no end")),
        (b"20 <13>half", SyslogFrame(b"<13>half")),
        (b"<13>a\n", None),
        (b"12", SyslogFrame(b"12")),
    ],
)
def test_the_end_of_a_connection_gives_what_came_of_the_last_message(data: bytes, left: SyslogFrame | None) -> None:
    cutter = FrameCutter()
    cutter.feed(data)
    assert cutter.is_between is (left is None)
    assert cutter.end() == left
    assert cutter.is_between
