"""Probes an object store: puts, reads, conditionally overwrites and deletes a small object."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Final

from millstream.tiered.objects import ObjectExists, ObjectStore

__all__ = ["ObjectStoreProbe", "probe_objects"]

_PREFIX: Final = "ms1/probe/"
_DATA: Final = b"Millstream asks whether this store does what it needs."


@dataclass(frozen=True, slots=True)
class ObjectStoreProbe:
    """What was seen. `ahead_ms` is how far the store's clock is ahead of this machine's, in whole seconds."""

    took_ms: float
    keeps_what_is_there: bool
    """Whether a create-only put refuses to replace an object. Nothing else depends on it than that two clusters below
    one prefix are found."""
    reads_ranges: bool
    lists_what_was_put: bool
    ahead_ms: int


def probe_objects(objects: ObjectStore) -> ObjectStoreProbe:
    """Try a store, and leave nothing behind. Waits for it. Raises ObjectStoreDenied, ObjectStoreAway."""
    key = _PREFIX + secrets.token_hex(16)
    began_s = time.monotonic()
    objects.put(key, _DATA, create_only=True)
    now_ms = time.time() * 1000
    try:
        try:
            objects.put(key, _DATA, create_only=True)
            keeps = False
        except ObjectExists:
            keeps = True
        reads = objects.get_many(key, [(0, 10), (20, 30)]) == [_DATA[:10], _DATA[20:30]]
        lists = [info.key for info in objects.list(key)] == [key]
        ahead_ms = round(objects.head(key).modified_ms - now_ms)
    finally:
        objects.delete([key])
    return ObjectStoreProbe((time.monotonic() - began_s) * 1000, keeps, reads, lists, ahead_ms)
