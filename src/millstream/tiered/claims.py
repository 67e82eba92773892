"""Claims: which broker the objects of a name belong to, so that two brokers of one name do not mix theirs.

    ms1-owners/CLUSTER/BROKER/NUMBER.json

A claim is put whole and never replaced; the one with the highest number counts. They lie apart from what they are
about: a store that has nothing of a broker but its claim is another one, or a disk without its mount. Calls wait for
the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from millstream.model.errors import StoreError
from millstream.tiered.objects import ObjectExists, ObjectStore

__all__ = ["OwnerClaim", "OwnerClaims"]

MAX_CLAIM_BYTES: Final = 64 * 1024
"""Bytes of a claim at most; what is longer is none of ours."""

_DIGITS: Final = 10
_SUFFIX: Final = ".json"


class OwnerClaim(msgspec.Struct, frozen=True):
    """Says whose the objects are: of the broker, or set of replicas, whose state has the token."""

    token: str
    place: str
    """Where that broker was when it claimed them, for people: machine and directory."""
    claimed_ms: int


@dataclass(frozen=True, slots=True)
class OwnerClaims:
    """Those about one broker's name. Raises ObjectStoreDenied, ObjectStoreAway."""

    objects: ObjectStore
    cluster: str
    broker: str

    def newest(self) -> tuple[int, OwnerClaim] | None:
        """The claim that counts, with its number; None where nobody has claimed the name. Raises STORE_FORMAT."""
        keys = [info.key for info in self.objects.list(self._prefix) if _number_of(info.key)]
        if not keys:
            return None
        data = self.objects.get(keys[-1])
        try:
            if len(data) > MAX_CLAIM_BYTES:
                raise ValueError(f"it has {len(data)} bytes")
            return _number_of(keys[-1]), msgspec.json.decode(data, type=OwnerClaim)
        except (ValueError, msgspec.MsgspecError) as error:
            raise StoreError("STORE_FORMAT", f"The object {keys[-1]!r} is no claim of a broker: {error}.") from error

    def put(self, number: int, claim: OwnerClaim) -> None:
        """Add the claim of that number, unless another one was quicker: look at the newest again."""
        try:
            self.objects.put(self.key(number), msgspec.json.encode(claim), create_only=True)
        except ObjectExists:
            return

    def key(self, number: int) -> str:
        """The key of the claim of that number."""
        return f"{self._prefix}{number:0{_DIGITS}}{_SUFFIX}"

    @property
    def _prefix(self) -> str:
        return f"ms1-owners/{self.cluster}/{self.broker}/"


def _number_of(key: str) -> int:
    """0 for what is no claim's key."""
    digits = key.rpartition("/")[2].removesuffix(_SUFFIX)
    return int(digits) if len(digits) == _DIGITS and digits.isascii() and digits.isdigit() else 0
