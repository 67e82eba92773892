"""Notes of running jobs beside a store of rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.streams.errors import RuleError
from millstream.streams.rules.notes import (
    MAX_EVIDENCE_CHARACTERS,
    MAX_NOTES_BYTES,
    Notes,
    QuarantineNote,
    RuleNotes,
    WorkNote,
)


def test_there_are_no_notes_before_the_first_one(tmp_path: Path) -> None:
    assert RuleNotes(tmp_path).read() == Notes()


def test_quarantined_rules_are_read_in_the_order_in_which_they_were_noted(tmp_path: Path) -> None:
    first = QuarantineNote("a", 3, "raised ValueError", '{"EventID":1}', "alerts", 1_000)
    second = QuarantineNote("b", 3, "took 40 s")
    RuleNotes(tmp_path).add(first)
    RuleNotes(tmp_path).add(second)
    assert RuleNotes(tmp_path).read().quarantined == (first, second)


def test_the_work_of_a_job_adds_up_and_jobs_stay_apart(tmp_path: Path) -> None:
    notes = RuleNotes(tmp_path)
    notes.add(WorkNote("one", 1, 10, 100, {"a": 2, "b": 1}, more={"groups": 3}))
    notes.add(WorkNote("one", 2, 20, 50, {"b": 4, "c": 1}, more={"groups": 4}))
    notes.add(WorkNote("two/../x", 2, 20, 7))
    assert notes.read().worked == (
        WorkNote("one", 2, 20, 150, {"a": 2, "b": 5, "c": 1}, more={"groups": 4}),
        WorkNote("two/../x", 2, 20, 7),
    )


def test_a_line_that_a_dying_job_tore_spoils_no_other(tmp_path: Path) -> None:
    notes = RuleNotes(tmp_path)
    notes.add(QuarantineNote("a", 1, "why"))
    path = tmp_path / "notes" / "quarantine.jsonl"
    path.write_bytes(path.read_bytes() + b'{"rule":"to')
    notes.add(QuarantineNote("b", 1, "why"))
    assert [one.rule for one in notes.read().quarantined] == ["a", "b"]


def test_notes_and_their_evidence_are_bounded_and_the_newest_stay(tmp_path: Path) -> None:
    notes = RuleNotes(tmp_path)
    for number in range(3 * MAX_NOTES_BYTES // MAX_EVIDENCE_CHARACTERS):
        notes.add(QuarantineNote(f"r{number}", 1, "why", "x" * 10 * MAX_EVIDENCE_CHARACTERS))
    found = notes.read().quarantined
    assert found[-1].rule == f"r{number}"
    assert len(found[-1].evidence) == MAX_EVIDENCE_CHARACTERS
    assert sum(path.stat().st_size for path in (tmp_path / "notes").iterdir()) <= 2 * MAX_NOTES_BYTES


def test_notes_that_cannot_be_kept_are_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("")
    with pytest.raises(RuleError, match="notes"):
        RuleNotes(tmp_path).add(QuarantineNote("a", 1, "why"))
