"""Restores a broker's data directory from an object store after its disk is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.broker.cold_manifest import ColdManifest, decode_manifest
from millstream.broker.cold_owner import encode_takeover
from millstream.broker.cold_tier import encode_restored_rows
from millstream.broker.data_directory import UNFINISHED_RESTORE
from millstream.model.errors import StartRefused, StoreError
from millstream.server.replicas.replica_seed import ReplicaSeed, plant_seed
from millstream.store.files import FileLayer
from millstream.store.message_store import StoreOptions
from millstream.tiered.manifests import Manifests, list_brokers
from millstream.tiered.objects import ObjectNotFound, ObjectStore

__all__ = ["RestoredBroker", "restore_broker"]

_SUFFIX: Final = "restore"
_ROWS: Final = "config/cold.json"


@dataclass(frozen=True, slots=True)
class RestoredBroker:
    """What was restored, and as of when: its cluster and name are to be those of the broker that is started on it."""

    cluster: str
    broker: str
    written_ms: int
    key: str
    """The manifest that it was made of."""


def restore_broker(
    objects: ObjectStore, directory: Path, broker: str = "", *, segment_bytes: int | None = None
) -> RestoredBroker:
    """Make a directory whose topics have the messages that were in the object store at the last manifest.

    Queues go on where they ended then; groups are where they were. `broker` is to be named where the store has several.
    Nothing of the store is changed. A restore that was cut off is begun anew. Raises RESTORE_REFUSED,
    DATA_DIRECTORY_NOT_WRITABLE, ObjectStoreDenied, ObjectStoreAway.
    """
    files, unfinished = FileLayer(), directory / UNFINISHED_RESTORE
    is_begun = files.exists(unfinished)
    if not is_begun and any(files.exists(directory / name) for name in ("store", "config")):
        raise StartRefused("RESTORE_REFUSED", f"The directory {directory} has messages or settings already.")
    cluster, name = _choose([*list_brokers(objects)], broker)
    key, manifest = _read_newest(objects, cluster, name)
    documents = {part: bytes(text) for part, text in manifest.documents.items()}
    documents["config/cold_owner.json"] = encode_takeover(objects, cluster, name)
    if _ROWS in documents:
        begin = manifest.seed.checkpoint.log_offset
        documents[_ROWS] = encode_restored_rows(documents[_ROWS], cluster, name, begin)
    seed = ReplicaSeed(manifest.seed, [], documents, [])
    try:
        files.make_directory(directory)
        # Until it is gone no broker starts here: half of what was there would be taken for all.
        files.replace(unfinished, key.encode())
        files.sync_directory(directory)
        if is_begun:
            files.remove_tree(directory / f"aside-{_SUFFIX}")
        aside = plant_seed(directory, seed, {}, segment_bytes or StoreOptions().segment_bytes, _SUFFIX)
        # What there was of the directory: nothing, or what a restore left that was cut off.
        files.remove_tree(aside)
        files.remove(unfinished)
        files.sync_directory(directory)
    except OSError as error:
        words = f"The data directory {directory} cannot be made: {error}."
        raise StartRefused("DATA_DIRECTORY_NOT_WRITABLE", words) from error
    return RestoredBroker(cluster, name, manifest.written_ms, key)


def _choose(there: Sequence[tuple[str, str]], broker: str) -> tuple[str, str]:
    fitting = [place for place in there if not broker or place[1] == broker]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(sorted(f"{name} of {cluster}" for cluster, name in there)) or "none"
    if not fitting:
        wanted = f"the broker {broker[:200]!r}" if broker else "a broker"
        raise StartRefused("RESTORE_REFUSED", f"The store has nothing of {wanted}; it has: {names}.")
    raise StartRefused("RESTORE_REFUSED", f"The store has several such brokers: {names}.")


def _read_newest(objects: ObjectStore, cluster: str, broker: str) -> tuple[str, ColdManifest]:
    """The newest manifest that can be read."""
    reason = "it has no manifest"
    for key in reversed(Manifests(objects, cluster, broker).keys()):
        try:
            return key, decode_manifest(key, objects.get(key))
        except (StoreError, ObjectNotFound) as error:
            if isinstance(error, StoreError) and error.name != "CHUNK_DAMAGED":
                raise
            reason = error.message
    raise StartRefused("RESTORE_REFUSED", f"The broker {broker} of {cluster} cannot be restored: {reason}.")
