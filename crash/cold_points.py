"""Places in tiered storage at which a process can be killed, by name: each step of what goes up, down and back."""

from __future__ import annotations

from crash.fault_points import FaultPoint
from millstream.broker import cold_merges, cold_tier
from millstream.broker.cold_merges import ColdMerges
from millstream.broker.cold_tier import ColdTier
from millstream.server import restoring
from millstream.store.files import FileLayer
from millstream.store.message_store import MessageStore
from millstream.tiered import cold_work
from millstream.tiered.cold_map import ColdMap
from millstream.tiered.directory_objects import DirectoryObjects
from millstream.tiered.manifests import Manifests
from millstream.tiered.upload import StretchUpload

__all__ = ["COLD_POINTS", "CONDITIONAL_POINTS", "RESTORE_POINTS"]

COLD_POINTS = {
    "stretch-gathered": FaultPoint(cold_work, "gather_stretch", is_after=True),
    "upload-begun": FaultPoint(StretchUpload, "put"),
    "object-in-half": FaultPoint(FileLayer, "pwrite", in_half=True),
    "object-written": FaultPoint(FileLayer, "link"),
    "object-there": FaultPoint(FileLayer, "link", is_after=True),
    "objects-put": FaultPoint(StretchUpload, "put", is_after=True),
    "commit": FaultPoint(ColdTier, "_commit"),
    "committed": FaultPoint(ColdTier, "_commit", is_after=True),
    "manifest": FaultPoint(Manifests, "put", most_calls=10),
    "manifest-put": FaultPoint(Manifests, "put", is_after=True, most_calls=10),
    "begun-deleting": FaultPoint(ColdTier, "_delete_below", most_calls=1),
    "begun-deleted": FaultPoint(ColdTier, "_delete_below", is_after=True, most_calls=1),
    "expired-found": FaultPoint(ColdMap, "find_expired", is_after=True),
    "objects-removed": FaultPoint(cold_tier, "remove_objects", is_after=True, most_calls=2),
    "deleting": FaultPoint(DirectoryObjects, "delete", most_calls=4),
    "deleted": FaultPoint(DirectoryObjects, "delete", is_after=True, most_calls=4),
    "objects-forgotten": FaultPoint(cold_tier, "forget_objects", is_after=True, most_calls=2),
    "letting-go": FaultPoint(MessageStore, "retain", most_calls=6),
    "let-go": FaultPoint(MessageStore, "retain", is_after=True, most_calls=6),
    "merge-begun": FaultPoint(cold_work, "merge_objects", most_calls=4),
    "merge-put": FaultPoint(cold_work, "merge_objects", is_after=True, most_calls=4),
    "merge-commit": FaultPoint(ColdMerges, "_commit", most_calls=4),
    "merge-releasing": FaultPoint(cold_merges, "release_objects", most_calls=4),
    "merge-committed": FaultPoint(ColdMerges, "_commit", is_after=True, most_calls=4),
    "fetching": FaultPoint(ColdTier, "fetch", most_calls=4),
    "fetched": FaultPoint(ColdTier, "fetch", is_after=True, most_calls=4),
}
"""Where S22 kills a broker."""

CONDITIONAL_POINTS = frozenset(name for name, point in COLD_POINTS.items() if point[:2] == (FileLayer, "link"))
"""Those that only a put comes to that must not replace an object: a store that ignores conditions has none of these."""

RESTORE_POINTS = {
    "manifest-read": FaultPoint(restoring, "_read_newest", is_after=True, most_calls=1),
    "restoring-in-half": FaultPoint(FileLayer, "pwrite", in_half=True, most_calls=12),
    "restore-renaming": FaultPoint(FileLayer, "rename", most_calls=8),
    "restore-renamed": FaultPoint(FileLayer, "rename", is_after=True, most_calls=8),
    "restored": FaultPoint(restoring, "plant_seed", is_after=True, most_calls=1),
}
"""Where S22 kills a restore."""
