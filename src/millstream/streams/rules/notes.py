"""Runtime notes beside a rule store: quarantined rules, and hit counts of each rule."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from millstream.streams.errors import RuleError
from millstream.streams.state.atomic_file import write_file

__all__ = ["Notes", "QuarantineNote", "RuleNotes", "WorkNote"]

MAX_EVIDENCE_CHARACTERS: Final = 4000
"""Characters of the evidence that a note of a quarantined rule keeps."""

MAX_NOTES_BYTES: Final = 4 * 1024 * 1024
"""Bytes of notes about quarantined rules, after which the older ones are kept in a second file, and those before them
are removed."""

_QUARANTINE = "quarantine.jsonl"
_Note = TypeVar("_Note")


class QuarantineNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule that was left out from a version on, why, and what showed it (the event, the place in the topic)."""

    rule: str
    version: int
    reason: str
    evidence: str = ""
    job: str = ""
    time_ms: int = 0


class WorkNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job's rules did: events judged, hits by rule and times that each atom was true.

    `more` is whatever else a person may want to see (groups, engines, cache hits), shown as it is.
    """

    job: str
    version: int
    time_ms: int
    events: int = 0
    hits: dict[str, int] = {}
    atoms: dict[str, int] = {}
    more: dict[str, str | int | float] = {}


class Notes(msgspec.Struct, frozen=True):
    """All notes: quarantined rules oldest first, and one line of work for each job."""

    quarantined: tuple[QuarantineNote, ...] = ()
    worked: tuple[WorkNote, ...] = ()


class RuleNotes:
    """The notes in `notes/` of a store's directory. Several processes may add; notes that cannot be read are left out.

    They explain and decide nothing, so a crash may lose the last of them.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "notes"

    def add(self, note: QuarantineNote | WorkNote) -> None:
        """Keep a note. Work is added to what the job of that name did before. Raises RULE_STORE_NOT_WRITABLE."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            if isinstance(note, QuarantineNote):
                self._append(note)
            else:
                self._sum(note)
        except OSError as error:
            words = f"Notes cannot be kept in {self._directory}: {error.strerror or error}."
            raise RuleError("RULE_STORE_NOT_WRITABLE", words) from error

    def read(self) -> Notes:
        """All that is there."""
        lines = b"\n".join(_content(self._directory / name) for name in (f"{_QUARANTINE}.old", _QUARANTINE))
        quarantined = (_decode_note(line, QuarantineNote) for line in lines.split(b"\n") if line)
        paths = sorted(self._directory.glob("worked-*.json"))
        worked = (_decode_note(_content(path), WorkNote) for path in paths)
        return Notes(tuple(one for one in quarantined if one), tuple(one for one in worked if one))

    def _append(self, note: QuarantineNote) -> None:
        path = self._directory / _QUARANTINE
        note = msgspec.structs.replace(note, evidence=note.evidence[:MAX_EVIDENCE_CHARACTERS])
        # The line ends with its own break and begins with one: a torn line of another process spoils only itself.
        line = b"\n" + msgspec.json.encode(note) + b"\n"
        if path.exists() and path.stat().st_size + len(line) > MAX_NOTES_BYTES:
            path.replace(self._directory / f"{_QUARANTINE}.old")
        with path.open("ab", buffering=0) as file:
            file.write(line)

    def _sum(self, note: WorkNote) -> None:
        path = self._directory / f"worked-{re.sub(r'[^A-Za-z0-9_.-]', '_', note.job)[:200]}.json"
        before = _decode_note(_content(path), WorkNote)
        if before is not None:
            note = msgspec.structs.replace(
                note,
                events=before.events + note.events,
                hits=_add_counts(before.hits, note.hits),
                atoms=_add_counts(before.atoms, note.atoms),
            )
        write_file(path, msgspec.json.encode(note), durable=False)


def _add_counts(before: dict[str, int], new: dict[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + new.get(name, 0) for name in before | new}


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _decode_note(line: bytes, kind: type[_Note]) -> _Note | None:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.MsgspecError:
        return None
