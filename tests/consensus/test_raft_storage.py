"""What a member of a Raft group keeps: over crashes at every step, over torn ends, and not over damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash.disk_model import random_choice
from crash.traced_files import TracedFiles, crash_state, lay_out
from hypothesis import given
from hypothesis import strategies as st

from millstream.consensus.raft import HardState, InstalledSnapshot
from millstream.consensus.raft_messages import Entry
from millstream.consensus.raft_storage import RaftFiles
from millstream.model.errors import StoreError


def test_what_was_kept_is_found_again(tmp_path: Path) -> None:
    files = RaftFiles(tmp_path)
    assert files.load().log.last_index == 0
    files.save_vote(HardState(3, "n1"))
    files.append(1, [Entry(1, b"a"), Entry(2, b"")])
    files.append(3, [Entry(3, b"c" * 1000)])
    found = RaftFiles(tmp_path).load()
    assert found.hard_state == HardState(3, "n1")
    assert found.log.entries == [Entry(1, b"a"), Entry(2, b""), Entry(3, b"c" * 1000)]
    again = RaftFiles(tmp_path)
    again.load()
    again.rewrite(1, [Entry(1, b"a")])
    again.append(2, [Entry(4, b"d")])
    assert RaftFiles(tmp_path).load().log.entries == [Entry(1, b"a"), Entry(4, b"d")]
    again.save_snapshot(InstalledSnapshot(2, 4, b"state"), [Entry(4, b"e")])
    found = RaftFiles(tmp_path).load()
    assert (found.snapshot, found.log.base_index, found.log.base_term) == (b"state", 2, 4)
    assert found.log.entries == [Entry(4, b"e")]


def test_a_torn_end_is_cut_off_at_every_byte_and_written_over(tmp_path: Path) -> None:
    files = RaftFiles(tmp_path)
    files.load()
    files.append(1, [Entry(1, b"kept")])
    kept = (tmp_path / "entries").stat().st_size
    files.append(2, [Entry(1, b"torn"), Entry(1, b"as well")])
    whole = (tmp_path / "entries").read_bytes()
    for end in range(kept, len(whole)):
        (tmp_path / "entries").write_bytes(whole[:end])
        again = RaftFiles(tmp_path)
        assert again.load().log.entries == [Entry(1, b"kept")]
        again.append(2, [Entry(2, b"new")])
        assert RaftFiles(tmp_path).load().log.entries == [Entry(1, b"kept"), Entry(2, b"new")]


def test_damage_before_the_end_refuses_the_start(tmp_path: Path) -> None:
    files = RaftFiles(tmp_path)
    files.load()
    files.append(1, [Entry(1, b"first")])
    files.append(2, [Entry(1, b"second")])
    whole = bytearray((tmp_path / "entries").read_bytes())
    for position in range(20):
        damaged = whole.copy()
        damaged[position] ^= 1
        (tmp_path / "entries").write_bytes(damaged)
        with pytest.raises(StoreError) as refused:
            RaftFiles(tmp_path).load()
        assert refused.value.name == "STORE_FORMAT"
        assert (tmp_path / "entries").read_bytes() == damaged


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("rewrite"), st.integers(0, 3)),
        st.tuples(st.just("snapshot"), st.integers(0, 2)),
        st.tuples(st.just("vote"), st.integers(1, 9)),
    ),
    min_size=1,
    max_size=6,
)


@given(steps=STEPS, data=st.data())
def test_after_a_power_cut_the_last_answered_state_or_the_next_is_there(
    steps: list[tuple[str, int]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("raft")
    traced = TracedFiles(directory)
    files = RaftFiles(directory / "raft", traced)
    files.load()
    entries: list[Entry] = []
    base = 0
    hard_state = HardState()
    legal = [(hard_state, base, list(entries))]
    marks = [len(traced.steps)]
    for number, (step, value) in enumerate(steps):
        if step == "append":
            new = [Entry(number, b"%d" % place) for place in range(value)]
            files.append(base + len(entries) + 1, new)
            entries = entries + new
        elif step == "rewrite":
            entries = entries[:value]
            files.rewrite(base + 1, entries)
        elif step == "snapshot" and entries:
            covered = min(value + 1, len(entries))
            files.save_snapshot(InstalledSnapshot(base + covered, 1, b"s"), entries[covered:])
            base, entries = base + covered, entries[covered:]
        elif step == "vote":
            hard_state = HardState(value, "n")
            files.save_vote(hard_state)
        legal.append((hard_state, base, list(entries)))
        marks.append(len(traced.steps))
    at = data.draw(st.integers(0, len(traced.steps)))
    choose = data.draw(st.randoms(use_true_random=False))
    state = crash_state(traced, random_choice(choose, 0.5), at)
    target = tmp_path_factory.mktemp("after")
    lay_out(state, target)
    found = RaftFiles(target / "raft").load()
    answered = max(place for place, mark in enumerate(marks) if mark <= at)
    candidates = legal[answered : answered + 2]
    seen = (found.hard_state, found.log.base_index, list(found.log.entries))
    assert seen in candidates or _is_between(seen, candidates)


def _is_between(seen: tuple[HardState, int, list[Entry]], candidates: list[tuple[HardState, int, list[Entry]]]) -> bool:
    """A snapshot is there before the log is cut: the entries that follow it are the same."""
    return any(seen[1] == base and seen[2] == entries for _, base, entries in candidates) and len(candidates) > 1
