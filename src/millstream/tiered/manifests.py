"""Manifests: what a broker's objects mean, beside them in the store, so that they are of use without its directory.

    ms1/CLUSTER/BROKER/manifest/NUMBER.json.zst

A manifest is put whole and never replaced; the one with the highest number counts. Calls wait for the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from millstream.tiered.cold_map import broker_prefix, manifest_prefix
from millstream.tiered.objects import ObjectExists, ObjectStore

__all__ = ["KEPT_MANIFESTS", "Manifests", "list_brokers"]

KEPT_MANIFESTS: Final = 3
"""Manifests of a broker that are kept, the last one among them: a damaged one gives way to the one before."""

MAX_BROKERS: Final = 10_000
"""Brokers below one prefix that are looked for at most."""

_SUFFIX: Final = ".json.zst"
_DIGITS: Final = 20
_BEHIND_ALL: Final = "~"
"""Comes behind every character that a key may have."""


@dataclass
class Manifests:
    """Those of one broker. Raises ObjectStoreDenied, ObjectStoreAway."""

    objects: ObjectStore
    cluster: str
    broker: str
    _number: int | None = None

    def put(self, data: bytes) -> str:
        """Add one behind all others, let the oldest go, and give its key."""
        keys = self.keys() if self._number is None else []
        number = self._number if self._number is not None else _number_of(keys[-1]) if keys else 0
        while True:
            number += 1
            key = f"{self._prefix}{number:0{_DIGITS}}{_SUFFIX}"
            try:
                self.objects.put(key, data, create_only=True)
                break
            except ObjectExists:
                # Of an answer that was lost, or of another master.
                continue
        self._number = number
        older = self.keys()[:-KEPT_MANIFESTS]
        if older:
            self.objects.delete(older)
        return key

    def keys(self) -> list[str]:
        """The keys of all there are, the oldest first."""
        return [info.key for info in self.objects.list(self._prefix) if _is_manifest(info.key)]

    @property
    def _prefix(self) -> str:
        return manifest_prefix(broker_prefix(self.cluster, self.broker))


def list_brokers(objects: ObjectStore) -> Iterator[tuple[str, str]]:
    """Clusters and names of the brokers that have objects in a store, without a look at each object."""
    after = ""
    for _ in range(MAX_BROKERS):
        found = next(iter(objects.list("ms1/", after)), None)
        if found is None:
            return
        _, cluster, broker, *rest = [*found.key.split("/"), "", ""]
        if any(rest[:-2]):
            yield cluster, broker
            after = broker_prefix(cluster, broker) + _BEHIND_ALL
        else:
            # A trial of the store, which has no broker's name.
            after = found.key


def _is_manifest(key: str) -> bool:
    name = key.rpartition("/")[2]
    return name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX).isdigit()


def _number_of(key: str) -> int:
    return int(key.rpartition("/")[2].removesuffix(_SUFFIX))
