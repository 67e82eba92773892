"""The files of Iceberg tables in an object store of ours, as pyiceberg asks for them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Final

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.typedef import EMPTY_DICT, Properties

from millstream.tiered.objects import ObjectExists, ObjectNotFound, ObjectStore

__all__ = ["STORE_PROPERTY", "ObjectFileIO", "StorePlace", "open_stores"]

STORE_PROPERTY: Final = "millstream.store"
"""The property of a catalogue that names one of `open_stores`."""


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A store, and the address that its objects have for others: `url` and a key below it."""

    objects: ObjectStore
    url: str

    def location(self, key: str) -> str:
        """The address of an object."""
        return f"{self.url.rstrip('/')}/{key}"

    def key(self, location: str) -> str:
        """The key of the object with that address; ValueError for one elsewhere."""
        found = self.find_key(location)
        if found is None:
            raise ValueError(f"{location!r} does not lie below {self.url!r}")
        return found

    def find_key(self, location: str) -> str | None:
        """The key of the object with that address; None for one elsewhere."""
        start = f"{self.url.rstrip('/')}/"
        return location.removeprefix(start) if location.startswith(start) else None


open_stores: Final[dict[str, StorePlace]] = {}
"""Those that catalogues of this process use: pyiceberg makes its `FileIO` itself, from texts alone."""


class ObjectFileIO(FileIO):
    """Reads and writes objects whole. Raises what pyiceberg expects, and ObjectStoreDenied, ObjectStoreAway."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._place = open_stores[properties[STORE_PROPERTY]]

    def new_input(self, location: str) -> InputFile:
        """See `FileIO`."""
        return _Input(self._place, location)

    def new_output(self, location: str) -> OutputFile:
        """See `FileIO`."""
        return _Output(self._place, location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See `FileIO`. An object that is not there is no error."""
        path = location if isinstance(location, str) else location.location
        self._place.objects.delete([self._place.key(path)])


class _Input(InputFile):
    def __init__(self, place: StorePlace, location: str) -> None:
        super().__init__(location)
        self._place, self._key = place, place.key(location)

    def __len__(self) -> int:
        return self._place.objects.head(self._key).size_bytes

    def exists(self) -> bool:
        try:
            self._place.objects.head(self._key)
        except ObjectNotFound:
            return False
        return True

    def open(self, seekable: bool = True) -> io.BytesIO:
        try:
            return io.BytesIO(self._place.objects.get(self._key))
        except ObjectNotFound as error:
            raise FileNotFoundError(str(error)) from error


class _Output(OutputFile):
    def __init__(self, place: StorePlace, location: str) -> None:
        super().__init__(location)
        self._place, self._key = place, place.key(location)

    def __len__(self) -> int:
        return self._place.objects.head(self._key).size_bytes

    def exists(self) -> bool:
        return _Input(self._place, self.location).exists()

    def to_input_file(self) -> InputFile:
        return _Input(self._place, self.location)

    def create(self, overwrite: bool = False) -> io.BytesIO:
        return _Written(self._place.objects, self._key, create_only=not overwrite)


class _Written(io.BytesIO):
    """Put as one object when it is closed."""

    def __init__(self, objects: ObjectStore, key: str, *, create_only: bool) -> None:
        super().__init__()
        self._objects, self._key, self._create_only = objects, key, create_only

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is not None:
            # What was cut off is no object.
            self._key = ""
        super().__exit__(kind, *rest)  # type: ignore[arg-type]

    def close(self) -> None:
        if not self.closed and self._key:
            key, self._key = self._key, ""
            try:
                self._objects.put(key, self.getvalue(), create_only=self._create_only)
            except ObjectExists as error:
                raise FileExistsError(str(error)) from error
        super().close()
