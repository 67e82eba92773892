"""What a broker tells of its cold tier: how much is where, what was read and written, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ColdTierReport"]


@dataclass(frozen=True, slots=True)
class ColdTierReport:
    """How the cold tier fares."""

    objects: int
    bytes: int
    uploaded_log_offset: int
    behind_bytes: int
    """Bytes of the log that did not go up yet."""
    removed_objects: int
    """Objects that wait for their deletion."""
    requests: int
    bytes_written: int
    bytes_read: int
    blocks_wanted: int
    blocks_cached: int
    errors: int
    damaged: int
    passed_over: int
    """Blocks and objects that stayed damaged or missing, and that readers were led past."""
    merges: int
    """Times that small objects were merged, since the start."""
    dropped_bytes: int
    """Bytes of the log that the disk let go of before they went up."""
    last_error: str
    """What the object store last failed with; blank once it did what was asked."""
    process: int | None
    """The number of the process that does the work; None where there is none now, and where the broker does it."""
    process_starts: int
