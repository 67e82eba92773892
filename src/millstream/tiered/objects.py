"""The interface of an object store for tiered storage, and its errors by meaning.

Calls block; they are for threads of their own. Objects are immutable for us: nothing is ever appended or overwritten.

    ObjectStoreError
    ├── ObjectNotFound       no object of that key
    ├── ObjectExists         a create-only put met an object of that key
    ├── ObjectStoreDenied    no such bucket, no rights, a wrong region, a clock that is off: it does not pass
    └── ObjectStoreAway      throttled, unreachable or failing for now: nobody knows whether a put or delete was done
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.model.errors import MillstreamError

__all__ = [
    "MAX_DELETED_KEYS",
    "MAX_KEY_BYTES",
    "ObjectExists",
    "ObjectInfo",
    "ObjectNotFound",
    "ObjectStore",
    "ObjectStoreAway",
    "ObjectStoreDenied",
    "ObjectStoreError",
    "check_key",
    "check_range",
]

MAX_KEY_BYTES: Final = 1024
"""Bytes of a key at most: the limit of S3."""

MAX_DELETED_KEYS: Final = 1000
"""Keys of one delete at most: the limit of S3."""

_LEGAL_KEY: Final = re.compile(r"[A-Za-z0-9._=%|-]+(?:/[A-Za-z0-9._=%|-]+)*")
_DOTS: Final = frozenset((".", ".."))


class ObjectStoreError(MillstreamError):
    """An object store did not do what it was asked for."""


class ObjectNotFound(ObjectStoreError):
    """No object of that key."""

    def __init__(self, key: str) -> None:
        super().__init__("OBJECT_NOT_FOUND", f"The object store has no object {key!r}.")


class ObjectExists(ObjectStoreError):
    """A create-only put met an object of that key, which stays as it is."""

    def __init__(self, key: str) -> None:
        super().__init__("OBJECT_EXISTS", f"The object store has an object {key!r} already.")


class ObjectStoreDenied(ObjectStoreError):
    """The store refuses for a cause that does not pass by itself."""

    def __init__(self, cause: str) -> None:
        super().__init__("OBJECT_STORE_DENIED", f"The object store refuses: {cause}.")


class ObjectStoreAway(ObjectStoreError):
    """The store does not answer as it should for now; a put or a delete may have been done all the same."""

    def __init__(self, cause: str) -> None:
        super().__init__("OBJECT_STORE_AWAY", f"The object store does not answer: {cause}.")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object without its bytes. `modified_ms` is the store's clock."""

    key: str
    size_bytes: int
    modified_ms: int


class ObjectStore(Protocol):
    """Objects below one prefix of a bucket or directory. Safe for several threads; not to be carried over a fork."""

    def put(self, key: str, data: bytes, *, create_only: bool = False) -> None:
        """Store an object whole; who reads sees all of it or nothing. Raises ObjectExists if it is create-only."""
        ...

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes from `start` to before `end` (None: the object's end); fewer never: ObjectStoreAway then."""
        ...

    def get_many(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As `get` for several ranges of one object, in as few requests as the store needs."""
        ...

    def head(self, key: str) -> ObjectInfo:
        """The object without its bytes."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, up to MAX_DELETED_KEYS; one that is not there is no error."""
        ...

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """The objects whose keys begin with the prefix and come behind `after`, in the order of their keys."""
        ...

    def close(self) -> None:
        """End what is under way; no call after this."""
        ...


def check_key(key: str) -> str:
    """The key; ValueError for one that not every store takes: it is letters, digits and `._=%|-` in parts by `/`."""
    if len(key) > MAX_KEY_BYTES or not _LEGAL_KEY.fullmatch(key) or not _DOTS.isdisjoint(key.split("/")):
        raise ValueError(f"{key[:200]!r} is no key of an object")
    return key


def check_range(key: str, size_bytes: int, start: int, end: int | None) -> tuple[int, int]:
    """The range with its end; ValueError where it does not lie within an object of that size."""
    last = size_bytes if end is None else end
    if not 0 <= start <= last <= size_bytes:
        raise ValueError(f"{start} to {end} is no range of the object {key!r} of {size_bytes} bytes")
    return start, last
