"""Parses the address of a bucket or directory in the setting `tiered.url`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from millstream.model.errors import StartRefused
from millstream.tiered.bucket_objects import BUCKET_SCHEMES, open_bucket
from millstream.tiered.directory_objects import DirectoryObjects
from millstream.tiered.objects import ObjectStore

__all__ = ["ObjectPlace"]


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """An object store: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or `file:///directory`.

    `endpoint` and `region` are of S3 alone: an endpoint is for stores other than Amazon's. Keys of access never stand
    here; they come from the environment of the process, as of the tools of each provider. Raises ILLEGAL_SETTING.
    """

    url: str
    endpoint: str = ""
    region: str = ""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.username or parts.password or parts.query:
            raise StartRefused("ILLEGAL_SETTING", "tiered.url holds more than an address: keys belong elsewhere.")
        if parts.scheme == "file":
            if parts.netloc or not parts.path.startswith("/"):
                raise StartRefused("ILLEGAL_SETTING", f"tiered.url: {self.url[:200]!r} names no absolute directory.")
        elif parts.scheme not in BUCKET_SCHEMES or not parts.netloc:
            kinds = ", ".join(f"{scheme}://bucket/prefix" for scheme in BUCKET_SCHEMES)
            raise StartRefused(
                "ILLEGAL_SETTING", f"tiered.url: {self.url[:200]!r} is none of {kinds}, file:///directory."
            )
        if (self.endpoint or self.region) and parts.scheme != "s3":
            raise StartRefused("ILLEGAL_SETTING", "tiered.endpoint and tiered.region are for addresses of S3 alone.")

    def open(self, *, to_read: bool = False) -> ObjectStore:
        """The client of the store, for this process. Raises EXTRA_MISSING, ObjectStoreDenied, ObjectStoreAway.

        Who wants `to_read` alone makes no directory where there is none.
        """
        parts = urlsplit(self.url)
        if parts.scheme == "file":
            return DirectoryObjects(Path(unquote(parts.path)), creates=not to_read)
        options = {"endpoint": self.endpoint, "region": self.region}
        return open_bucket(self.url, {name: value for name, value in options.items() if value})
