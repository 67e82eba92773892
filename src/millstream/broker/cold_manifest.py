"""The content of a manifest: all that a broker needs to serve its cold messages and to continue after them.

It is JSON in a zstd frame. Users and their keys are not in it: a bucket is no place for them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from millstream.model.errors import StoreError
from millstream.store.seed import StoreSeed
from millstream.tiered.chunk import pack_frame, unpack_frame

__all__ = ["MAX_MANIFEST_BYTES", "ColdManifest", "decode_manifest", "encode_manifest"]

MAX_MANIFEST_BYTES: Final = 512 * 1024 * 1024
"""Bytes of a manifest at most, unpacked: the rows of some millions of objects."""

_VERSION: Final = 1


class ColdManifest(msgspec.Struct, frozen=True, kw_only=True):
    """`documents` are those of the state, by their parts of the data directory; `seed` says where the queues ended."""

    version: int = _VERSION
    cluster: str
    broker: str
    written_ms: int
    seed: StoreSeed
    documents: dict[str, msgspec.Raw]


def encode_manifest(cluster: str, broker: str, written_ms: int, seed: StoreSeed, documents: dict[str, bytes]) -> bytes:
    """The bytes of the manifest of that broker; see `ColdManifest`. The documents are JSON."""
    texts = {part: msgspec.Raw(text) for part, text in documents.items()}
    manifest = ColdManifest(cluster=cluster, broker=broker, written_ms=written_ms, seed=seed, documents=texts)
    return pack_frame(msgspec.json.encode(manifest))


def decode_manifest(key: str, data: bytes) -> ColdManifest:
    """The manifest. Raises CHUNK_DAMAGED, STORE_FORMAT for one of a later version."""
    try:
        manifest = msgspec.json.decode(unpack_frame(data, MAX_MANIFEST_BYTES), type=ColdManifest)
    except (ValueError, msgspec.MsgspecError) as error:
        raise StoreError("CHUNK_DAMAGED", f"The manifest {key!r} is damaged: {error}.") from error
    if manifest.version != _VERSION:
        raise StoreError("STORE_FORMAT", f"The manifest {key!r} is of version {manifest.version}, not {_VERSION}.")
    return manifest
