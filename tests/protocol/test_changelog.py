"""Records in, changes of keys out."""

from __future__ import annotations

from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.changelog import ChangelogDecoder
from millstream.protocol.record_encoder import RecordEncoder

_HOST = Address("10.0.0.9", 4)


def _records(*puts: tuple[int, str | None, bytes]) -> list[memoryview]:
    encoder = RecordEncoder(1_700_000_000_000, _HOST)
    return [
        memoryview(encoder.encode(OutgoingMessage("prices", body, {"KEYS": key} if key else {}), 0, offset, 0))
        for offset, key, body in puts
    ]


def test_a_body_is_a_value_and_an_empty_one_a_deletion() -> None:
    changes = list(ChangelogDecoder().changes(_records((0, "a", b"1"), (2, "a", b""), (5, "b c", b"2"))))
    assert changes == [(b"a", b"1", 0), (b"a", None, 2), (b"b", b"2", 5)]


def test_what_was_taken_before_is_passed_over_so_that_a_pull_may_be_repeated() -> None:
    changelog = ChangelogDecoder()
    first = _records((3, "a", b"1"), (4, "b", b"2"))
    assert len(list(changelog.changes(first))) == 2
    assert changelog.next_offset == 5
    assert list(changelog.changes([*first, *_records((7, "a", b"3"))])) == [(b"a", b"3", 7)]
    assert changelog.next_offset == 8


def test_a_record_without_a_key_changes_nothing() -> None:
    changelog = ChangelogDecoder()
    assert list(changelog.changes(_records((0, None, b"1")))) == []
    assert changelog.next_offset == 1


def test_passing_over_a_gap_never_goes_back() -> None:
    changelog = ChangelogDecoder(5)
    changelog.pass_to(9)
    changelog.pass_to(7)
    assert changelog.next_offset == 9
