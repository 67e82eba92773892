"""Places in tiered storage at which a process can be killed, by name: each step of what goes up, down and back."""

from __future__ import annotations

from crash.fault_points import FaultPoint
from millstream.broker import cold_tier
from millstream.broker.cold_tier import ColdTier
from millstream.server import restoring
from millstream.store.files import FileLayer
from millstream.store.message_store import MessageStore
from millstream.tiered import cold_work
from millstream.tiered.cold_map import ColdMap
from millstream.tiered.directory_objects import DirectoryObjects
from millstream.tiered.manifests import Manifests
from millstream.tiered.upload import StretchUpload

__all__ = ["COLD_POINTS", "RESTORE_POINTS"]

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
    "fetching": FaultPoint(ColdTier, "fetch", most_calls=4),
    "fetched": FaultPoint(ColdTier, "fetch", is_after=True, most_calls=4),
}
"""Where S22 kills a broker."""

RESTORE_POINTS = {
    "manifest-read": FaultPoint(restoring, "_read_newest", is_after=True, most_calls=1),
    "restoring-in-half": FaultPoint(FileLayer, "pwrite", in_half=True, most_calls=12),
    "restore-renaming": FaultPoint(FileLayer, "rename", most_calls=8),
    "restore-renamed": FaultPoint(FileLayer, "rename", is_after=True, most_calls=8),
    "restored": FaultPoint(restoring, "plant_seed", is_after=True, most_calls=1),
}
"""Where S22 kills a restore."""
