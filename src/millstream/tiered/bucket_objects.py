"""Buckets of S3-compatible stores, Google Cloud and Azure, through the package obstore.

Keys of access come from the environment, the files and the metadata service of each provider, as obstore takes them.
obstore's client does not live on in a forked process: make one behind the fork, and none before it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millstream.model.errors import ExtraMissing
from millstream.tiered.objects import (
    MAX_DELETED_KEYS,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    ObjectStoreAway,
    ObjectStoreDenied,
    check_key,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Bucket

__all__ = ["BUCKET_SCHEMES", "LARGE_PUT_BYTES", "LARGE_PUT_S", "BucketObjects", "open_bucket"]

BUCKET_SCHEMES: Final = ("s3", "gs", "az")
"""How addresses of buckets begin."""

TIMEOUT_S: Final = 30
"""Seconds that one request may take, but for a large put."""

LARGE_PUT_BYTES: Final = 1024 * 1024
"""A put of more bytes has `LARGE_PUT_S`: it comes forward where the store takes little in a second."""

LARGE_PUT_S: Final = 600
"""Seconds that it may take: an object of 32 MiB at 56 KB/s."""

MAX_RETRIES: Final = 3
"""Times that the client tries a request again by itself; the caller's backoff comes after them."""

RETRY_S: Final = 20
"""Seconds that these attempts may take together."""

_CAUSE_CHARACTERS: Final = 300
_DENIED: Final = re.compile(
    r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket|RequestTimeTooSkewed|PermanentRedirect|"
    r"AuthorizationHeaderMalformed|ExpiredToken|InvalidToken|Missing\w*Cred|no credentials|40[13]\b|301 Moved",
    re.IGNORECASE,
)
_NO_BUCKET: Final = re.compile(r"NoSuchBucket|bucket does not exist", re.IGNORECASE)


def open_bucket(url: str, options: Mapping[str, str] | None = None) -> BucketObjects:
    """The store below `scheme://bucket/prefix`. `options` are obstore's, such as `endpoint` and `region`.

    Nothing is asked of the store yet. Raises ObjectStoreDenied for an address or options that it does not know.
    """
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError as error:
        raise ExtraMissing("Tiered storage in a bucket", error.name, extra="tiered") from error
    retry = {"max_retries": MAX_RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)}
    config = dict(options or {})
    allow_http = config.get("endpoint", "").startswith("http:")

    def open_with(timeout_s: float) -> Bucket:
        client = {"timeout": timedelta(seconds=timeout_s), "allow_http": allow_http}
        return from_url(url, config=config, client_options=client, retry_config=retry)  # type: ignore[call-overload, no-any-return]

    try:
        bucket = open_with(TIMEOUT_S)
        # What lies in this process is not there a second time.
        is_remote = url.partition("://")[0] in BUCKET_SCHEMES
        return BucketObjects(bucket, open_with(LARGE_PUT_S) if is_remote else bucket)
    except (BaseError, ValueError) as error:
        raise ObjectStoreDenied(f"{url}: {_cause(error)}") from error


class BucketObjects:
    """The objects of one bucket below one prefix; belongs to the process that made it. `slow` is the same one, which
    gives a request the time that a large put may take."""

    def __init__(self, bucket: Bucket, slow: Bucket) -> None:
        self._bucket = bucket
        self._slow = slow
        self._process = os.getpid()

    def put(self, key: str, data: bytes, *, create_only: bool = False) -> None:
        """See `ObjectStore`."""
        bucket = self._slow if len(data) > LARGE_PUT_BYTES else self._bucket
        with self._meaning(check_key(key)):
            bucket.put(key, data, mode="create" if create_only else "overwrite", use_multipart=False)

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """See `ObjectStore`."""
        with self._meaning(check_key(key)):
            if end is None and not start:
                return bytes(self._bucket.get(key).bytes())
            if end is None:
                end = int(self._bucket.head(key)["size"])
            if start == end:
                return b""
            return self._whole(key, bytes(self._bucket.get_range(key, start=start, end=end)), end - start)

    def get_many(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See `ObjectStore`."""
        if not ranges:
            return []
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        with self._meaning(check_key(key)):
            found = self._bucket.get_ranges(key, starts=starts, ends=ends)
            return [self._whole(key, bytes(one), end - start) for one, (start, end) in zip(found, ranges, strict=True)]

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore`."""
        with self._meaning(check_key(key)):
            found = self._bucket.head(key)
            return ObjectInfo(key, int(found["size"]), int(found["last_modified"].timestamp() * 1000))

    def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`."""
        if len(keys) > MAX_DELETED_KEYS:
            raise ValueError(f"{len(keys)} keys are more than {MAX_DELETED_KEYS}")
        if not keys:
            return
        with self._meaning(keys[0]):
            try:
                self._bucket.delete([check_key(key) for key in keys])
            except FileNotFoundError:
                # Some stores say so of one of several: the others may be there still.
                for key in keys:
                    self._delete_one(key)

    def _delete_one(self, key: str) -> None:
        try:
            self._bucket.delete(key)
        except FileNotFoundError:
            return

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore`."""
        # A prefix is whole parts of a path for obstore; what begins with the last, unfinished part is picked here.
        above = prefix.rpartition("/")[0]
        with self._meaning(prefix):
            for page in self._bucket.list(above or None, offset=after or None):
                for found in page:
                    key = str(found["path"])
                    if key.startswith(prefix) and key > after:
                        yield ObjectInfo(key, int(found["size"]), int(found["last_modified"].timestamp() * 1000))

    def close(self) -> None:
        """See `ObjectStore`. Every call blocks until it has ended, so nothing is under way."""

    def _whole(self, key: str, data: bytes, size_bytes: int) -> bytes:
        if len(data) != size_bytes:
            raise ObjectStoreAway(f"it gave {len(data)} bytes of {key!r} where {size_bytes} were asked for")
        return data

    @contextmanager
    def _meaning(self, key: str) -> Iterator[None]:
        """The error of the object store for one of obstore."""
        from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError

        if os.getpid() != self._process:
            raise RuntimeError("an object store's client was carried over a fork")
        try:
            yield
        except (NotFoundError, FileNotFoundError) as error:
            if _NO_BUCKET.search(str(error)):
                raise ObjectStoreDenied(_cause(error)) from error
            raise ObjectNotFound(key) from None
        except (AlreadyExistsError, PreconditionError):
            raise ObjectExists(key) from None
        except (BaseError, OSError) as error:
            cause = f"{key}: {_cause(error)}"
            raise (ObjectStoreDenied(cause) if _DENIED.search(str(error)) else ObjectStoreAway(cause)) from error


def _cause(error: Exception) -> str:
    return " ".join(str(error).split())[:_CAUSE_CHARACTERS]
