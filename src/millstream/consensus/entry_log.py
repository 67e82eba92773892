"""The in-memory log of one member: the entries after its snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from millstream.consensus.raft_messages import Entry

__all__ = ["EntryLog"]


@dataclass(slots=True)
class EntryLog:
    """Entries are counted from 1. The snapshot holds all up to `base_index`, whose entry was of `base_term`."""

    base_index: int = 0
    base_term: int = 0
    entries: list[Entry] = field(default_factory=list)

    @property
    def last_index(self) -> int:
        """The index of the last entry; that of the snapshot where nothing follows it."""
        return self.base_index + len(self.entries)

    @property
    def last_term(self) -> int:
        """The term of the last entry."""
        return self.entries[-1].term if self.entries else self.base_term

    def term_at(self, index: int) -> int | None:
        """The term of an entry; None where it is not there, or only in the snapshot."""
        if index == self.base_index:
            return self.base_term
        if self.base_index < index <= self.last_index:
            return self.entries[index - self.base_index - 1].term
        return None

    def first_index_of(self, term: int) -> int:
        """The index of the first kept entry of that term or of a later one."""
        for place, entry in enumerate(self.entries):
            if entry.term >= term:
                return self.base_index + 1 + place
        return self.last_index + 1

    def slice(self, first: int, last: int) -> Sequence[Entry]:
        """The entries from `first` to `last`, both included."""
        return self.entries[first - self.base_index - 1 : last - self.base_index]

    def from_index(self, first: int, max_bytes: int) -> tuple[Entry, ...]:
        """Entries from `first` on, of about `max_bytes` together, and at least one where there is one."""
        found: list[Entry] = []
        size_bytes = 0
        for entry in self.entries[first - self.base_index - 1 :]:
            size_bytes += len(entry.data)
            if found and size_bytes > max_bytes:
                break
            found.append(entry)
        return tuple(found)

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries behind the last one."""
        self.entries.extend(entries)

    def truncate(self, from_index: int) -> None:
        """Drop the entry at that index and all behind it."""
        del self.entries[from_index - self.base_index - 1 :]

    def compact(self, index: int, term: int) -> None:
        """A snapshot holds all up to `index`. What follows is kept if the log has that entry, else nothing is."""
        if self.term_at(index) == term:
            del self.entries[: index - self.base_index]
        else:
            self.entries.clear()
        self.base_index, self.base_term = index, term
