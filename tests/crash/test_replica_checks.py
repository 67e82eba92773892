"""What the programmes over replicas make of what they saw: failover times, locks of two masters, differing logs."""

from __future__ import annotations

from pathlib import Path

from crash.history import Event
from crash.lock_watch import LockGrant, find_overlap_s
from crash.replica_logs import find_differences
from crash.replica_run import resumed_s


def _send(name: str, began_s: float, taken_s: float) -> list[Event]:
    return [Event(at_s=began_s, kind="invoke", message=name), Event(at_s=taken_s, kind="ok", message=name)]


def test_a_failover_ends_with_the_first_answer_to_a_send_that_began_after_the_fault() -> None:
    events = [*_send("under-way", 0.9, 1.1), *_send("later", 1.2, 1.5), *_send("last", 1.3, 1.4)]
    assert resumed_s([Event(at_s=1.0, kind="fault", message="kill")], events) == {"kill": [1.4 - 1.0]}


def test_a_fault_that_nothing_followed_has_no_time() -> None:
    assert resumed_s([Event(at_s=2.0, kind="fault", message="kill")], _send("before", 1.0, 1.5)) == {}


def test_two_masters_overlap_where_the_old_one_was_asked_after_the_new_one_had_answered() -> None:
    old, new = LockGrant("r1", 5.0, 5.1), LockGrant("r2", 4.0, 4.5)
    assert find_overlap_s([old, new], "r1") == 0.5


def test_masters_one_after_the_other_do_not_overlap() -> None:
    grants = [LockGrant("r1", 1.0, 1.1), LockGrant("r1", 2.0, 2.9), LockGrant("r2", 2.1, 2.8)]
    assert find_overlap_s(grants, "r1") == 0.0
    assert find_overlap_s(grants[:2], "r1") == 0.0


def test_logs_differ_at_each_other_byte_before_the_end_and_where_one_is_shorter(tmp_path: Path) -> None:
    for name, parts in {"one": (b"abcdef", b"ghi"), "other": (b"abXdef", b"gYi"), "short": (b"abcdef", b"g")}.items():
        folder = tmp_path / name
        folder.mkdir()
        for start, content in zip((0, 6), parts, strict=True):
            (folder / f"{start:020}").write_bytes(content)
    assert find_differences(tmp_path / "one", tmp_path / "other", 9) == {2, 7}
    assert find_differences(tmp_path / "one", tmp_path / "other", 7) == {2}
    assert find_differences(tmp_path / "one", tmp_path / "short", 9) == {7, 8}
