"""The manifest of a dimension table: `manifest.json`, written last.

Its first line is the BLAKE2b digest of what follows, a line of JSON.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from millstream.store.files import FileLayer
from millstream.streams.dimension.index_key import IndexKey
from millstream.streams.dimension.planes import PlaneFact
from millstream.streams.errors import DimensionError

__all__ = ["MANIFEST_NAME", "IndexFact", "TableManifest", "decoded_schema", "encoded_schema"]

MANIFEST_NAME: Final = "manifest.json"

_FORMAT: Final = 1
_OVERLAID: Final = 2
"""The format of a table that is not whole without its overlay, so that older releases refuse it."""

_DIGEST_BYTES: Final = 16


class IndexFact(msgspec.Struct, frozen=True):
    """One index: its key as `IndexKey.encoded`, the name of its files, what its reader has to know.

    `lengths` are those of the networks (see `addresses.IPV4`) or prefixes (bytes) that it has.
    """

    key: dict[str, Any]
    name: str
    said: dict[str, Any]
    lengths: list[int] = []

    @property
    def index_key(self) -> IndexKey:
        return IndexKey.decode(self.key)


class TableManifest(msgspec.Struct, frozen=True):
    """What a table has: `columns` are the stored ones of the Arrow `schema`, in the forms that were chosen for them.

    `types` is the schema of all columns that the table was made of, also those that only an index knows.
    """

    format: int
    rows: int
    seed: str
    verify: bool
    schema: str
    types: str
    columns: list[dict[str, Any]]
    indexes: list[IndexFact]
    files: dict[str, PlaneFact]

    @property
    def is_overlaid(self) -> bool:
        """Whether an overlay beside the table hides some of its rows and has others."""
        return self.format == _OVERLAID

    def overlaid(self, hidden: dict[str, PlaneFact]) -> TableManifest:
        """The same table below an overlay, with the files that say what that hides."""
        return msgspec.structs.replace(self, format=_OVERLAID, files={**self.files, **hidden})

    def write(self, files: FileLayer, directory: Path) -> None:
        """Put it into the directory, in place of the one before, in one step."""
        content = msgspec.json.encode(self) + b"\n"
        files.replace(directory / MANIFEST_NAME, _digest(content) + b"\n" + content)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files that the table consists of, and of this one."""
        return (
            sum(fact.size_bytes for fact in self.files.values())
            + len(msgspec.json.encode(self))
            + 2 * _DIGEST_BYTES
            + 2
        )

    @classmethod
    def read(cls, files: FileLayer, directory: Path) -> TableManifest:
        """That of a directory. Raises DIMENSION_DAMAGED where there is none, or not a whole one."""
        path = directory / MANIFEST_NAME
        try:
            digest, _, content = files.read_all(path).partition(b"\n")
        except FileNotFoundError:
            words = f"{directory} holds no dimension table: {MANIFEST_NAME} is missing."
            raise DimensionError("DIMENSION_DAMAGED", words) from None
        except OSError as error:
            raise _explain_damage(path, f"cannot be read: {error.strerror}") from None
        if digest != _digest(content):
            raise _explain_damage(path, "fails its checksum")
        try:
            found = msgspec.json.decode(content, type=cls)
        except msgspec.MsgspecError as error:
            raise _explain_damage(path, f"cannot be read by this release: {error}") from None
        if found.format not in (_FORMAT, _OVERLAID):
            raise _explain_damage(path, f"has the format {found.format}, which this release does not know")
        return found

    @classmethod
    def of(cls, **parts: Any) -> TableManifest:
        """A manifest in the present format."""
        return cls(format=_FORMAT, **parts)


def encoded_schema(schema: pa.Schema) -> str:
    """An Arrow schema as text."""
    return base64.b64encode(schema.serialize()).decode("ascii")


def decoded_schema(text: str) -> pa.Schema:
    """The Arrow schema of which that is the text."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest().encode()


def _explain_damage(path: Path, what: str) -> DimensionError:
    return DimensionError("DIMENSION_DAMAGED", f"The file {path} of a dimension table {what}.")
