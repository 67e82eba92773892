"""The versions of a model that a job uses, kept beside its checkpoint: each micro-batch has one, also when repeated.

The process that delivers micro-batches says before each of them which version it is (`begin`) and copies new ones from
where the model is; the workers read what was said. So a replay needs neither the store nor the file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol

import msgspec

from millstream.streams.errors import ModelError
from millstream.streams.learning.artefacts import Artefact, load_artefact
from millstream.streams.learning.model import ModelReference
from millstream.streams.learning.store import ModelStore
from millstream.streams.learning.trust import check_trusted, check_trusted_topic, read_artefact
from millstream.streams.plan.types import Field
from millstream.streams.whole_files import put

__all__ = ["KEPT_BATCHES", "LOADED", "KeptModel", "ModelFeed", "artefact_of"]

KEPT_BATCHES: Final = 100
"""Micro-batches of which a job knows the version of a model: as many as it may repeat, and some for diagnosis."""

LOADED: Final = 4
"""Versions of models that a worker keeps loaded."""

_SUFFIX = ".artefact"


class _Head(msgspec.Struct):
    """The first line of a kept version."""

    format: str
    shown: str


class ModelFeed(Protocol):
    """Where the versions of a model arrive."""

    def newest(self) -> tuple[str, bytes]:
        """What the newest version is called, as part of a file's name, and its artefact. Raises ModelError."""
        ...


class KeptModel:
    """One model of one job, below `directory`. `inputs` and `outputs` are the declared columns.

    `feed` is that of a model of a topic.
    """

    def __init__(
        self,
        directory: Path,
        reference: ModelReference,
        inputs: Sequence[Field],
        outputs: Sequence[Field],
        feed: ModelFeed | None = None,
    ) -> None:
        name = hashlib.sha256(reference.call_name.encode()).hexdigest()[:16]
        self.directory = directory / name
        self.reference = reference
        self._inputs = inputs
        self._outputs = outputs
        self._feed = feed
        self._arrived = b""
        self._trouble: str | None = None

    def begin(self, batch_id: int) -> None:
        """Say which version scores a micro-batch: the one that counts now, or the one that it was begun with.

        Where no newer version can be taken the last one goes on, which `trouble` tells. Raises ModelError where there
        is none.
        """
        note = self._batches / str(batch_id)
        if note.exists():
            return
        put(note, self._take().encode(), synced=True)
        self._clear(batch_id)

    def forget(self) -> None:
        """A run begins anew: no micro-batch has a version."""
        for note in self._notes():
            note.unlink(missing_ok=True)

    def trouble(self) -> str | None:
        """Why no newer version could be taken the last time."""
        return self._trouble

    @property
    def _batches(self) -> Path:
        return self.directory / "batches"

    def _notes(self) -> list[Path]:
        return sorted(
            (path for path in self._batches.glob("*") if path.name.isdigit()), key=lambda path: int(path.name)
        )

    def _take(self) -> str:
        """The version that counts, kept from here on."""
        try:
            key = self._current()
            if not _path(self.directory, key).exists():
                self._keep(key)
        except ModelError as error:
            notes = self._notes()
            if not notes:
                raise
            last = notes[-1].read_text()
            self._trouble = f"{error.message} The model {self.reference.name} goes on as it was before."
            return last
        self._trouble = None
        return key

    def _current(self) -> str:
        """What the version that counts now is called."""
        reference = self.reference
        if self._feed is not None:
            key, self._arrived = self._feed.newest()
            return key
        if reference.store:
            store = ModelStore(Path(reference.store))
            return str(store.current(reference.stored))
        try:
            found = os.stat(reference.file)
        except OSError as error:
            words = f"The model {reference.file} cannot be read: {error.strerror}."
            raise ModelError("MODEL_NOT_FOUND", words) from None
        return f"{found.st_mtime_ns}-{found.st_size}"

    def _keep(self, key: str) -> None:
        reference = self.reference
        if self._feed is not None:
            check_trusted_topic(reference.topic)
            format, shown = "onnx", f"{reference.name} ({key} of the topic {reference.topic})"
            content = self._arrived
        elif reference.store:
            found, content = ModelStore(Path(reference.store)).load(reference.stored, int(key))
            format, shown = found.format, f"{reference.name} (version {key} of {reference.stored})"
            check_trusted(Path(reference.store), format)
        else:
            format, shown = reference.format, f"{reference.name} ({reference.file})"
            content = read_artefact(Path(reference.file), format)
        load_artefact(format, content, shown).check(self._inputs, self._outputs)
        head = msgspec.json.encode(_Head(format, shown))
        put(_path(self.directory, key), head + b"\n" + content, synced=True)

    def _clear(self, batch_id: int) -> None:
        """Forget old micro-batches, and versions that none has."""
        notes = self._notes()
        old = [note for note in notes if int(note.name) <= batch_id - KEPT_BATCHES]
        used = {note.read_text() for note in notes if note not in old}
        for note in old:
            note.unlink(missing_ok=True)
        for path in (self.directory / "versions").glob(f"[!.]*{_SUFFIX}"):
            if path.name.removesuffix(_SUFFIX) not in used:
                path.unlink(missing_ok=True)


def artefact_of(directory: str, batch_id: int) -> tuple[Artefact, str]:
    """The model that scores a micro-batch, and what it is called; loaded once in each worker. Raises ModelError."""
    return _loaded(directory, _version(directory, batch_id))


def _version(directory: str, batch_id: int) -> str:
    try:
        return (Path(directory) / "batches" / str(batch_id)).read_text()
    except OSError as error:
        words = f"{directory} does not tell which version scores micro-batch {batch_id}: {error.strerror}."
        raise ModelError("MODEL_DAMAGED", words, remedy="Remove the checkpoint, which begins anew.") from None


@lru_cache(maxsize=LOADED)
def _loaded(directory: str, key: str) -> tuple[Artefact, str]:
    path = _path(Path(directory), key)
    try:
        first, _, content = path.read_bytes().partition(b"\n")
        head = msgspec.json.decode(first, type=_Head)
    except (OSError, msgspec.MsgspecError) as error:
        words = f"The kept model {path} cannot be read: {error}."
        raise ModelError("MODEL_DAMAGED", words, remedy="Remove the checkpoint, which begins anew.") from None
    return load_artefact(head.format, content, head.shown), head.shown


def _path(directory: Path, key: str) -> Path:
    return directory / "versions" / f"{key}{_SUFFIX}"
