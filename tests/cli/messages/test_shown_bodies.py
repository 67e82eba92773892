"""What `produce` sends."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.messages.produce import lines_of, open_input, repeat_bodies, whole
from millstream.model.errors import MessageRefused
from millstream.model.message import MAX_BODY_BYTES


class Pieces(io.BytesIO):
    """A pipe that gives what has come: one piece at each read."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__()
        self.pieces = [piece for piece in pieces if piece]

    def read1(self, size: int | None = -1, /) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""


def test_lines_are_handed_out_as_they_come() -> None:
    assert list(lines_of(Pieces([b"a\nb\nc", b"d\n", b"e"]))) == [[b"a", b"b"], [b"cd"], [b"e"]]


def test_blank_lines_are_passed_over_and_ends_are_cut_off() -> None:
    assert list(lines_of(Pieces([b"a\r\n\n  \n b \n"]))) == [[b"a", b" b "]]
    assert list(lines_of(Pieces([]))) == []


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_no_line_is_lost_or_cut_wherever_the_pieces_end(pieces: list[bytes]) -> None:
    found = [line for lines in lines_of(Pieces(pieces)) for line in lines]
    lines = b"".join(pieces).split(b"\n")
    assert found == [line.rstrip(b"\r") for line in lines if line.strip()]


def test_bodies_of_the_command_line_come_in_turn() -> None:
    assert list(repeat_bodies([b"a", b"b"], 2)) == [[b"a", b"b", b"a", b"b"]]
    many = list(repeat_bodies([b"x"], 2500))
    assert sum(map(len, many)) == 2500
    assert max(map(len, many)) <= 1000


def test_a_whole_file_is_one_body_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\n\xff\n")
    with open_input(tmp_path / "f") as source:
        assert list(whole(source)) == [[b"a\n\xff\n"]]
    with pytest.raises(MessageRefused) as refused:
        list(whole(Pieces([b"x" * MAX_BODY_BYTES, b"x"])))
    assert refused.value.name == "BODY_TOO_LARGE"


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(MessageRefused, match=str(path)) as refused:
            list(lines_of(open_input(path)))
        assert refused.value.name == "MESSAGE_SOURCE"
