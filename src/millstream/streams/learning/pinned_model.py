"""The model version of each micro-batch, kept beside the checkpoint and repeated on replay.

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
from millstream.streams.learning.artefacts import (
    Artefact,
    check_trusted,
    check_trusted_topic,
    load_artefact,
    read_artefact,
)
from millstream.streams.learning.model import ModelReference
from millstream.streams.learning.store import ModelStore
from millstream.streams.plan.types import Field
from millstream.streams.state.pinned_versions import BatchVersions, VersionCopies, take_or_fall_back

__all__ = ["LOADED", "PINNED_BATCHES", "ModelFeed", "PinnedModel", "artefact_of"]

PINNED_BATCHES: Final = 100
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


class PinnedModel:
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
        self._batches = _batches(self.directory)
        self._copies = _copies(self.directory)
        self._arrived = b""
        self._trouble: str | None = None

    def begin(self, batch_id: int) -> None:
        """Say which version scores a micro-batch: the one that counts now, or the one that it was begun with.

        Where no newer version can be taken the last one goes on, which `trouble` tells. Raises ModelError where there
        is none.
        """
        if self._batches.find(batch_id) is None:
            self._batches.pin(batch_id, self._take().encode())
            self._clear(batch_id)

    def forget(self) -> None:
        """A run starts over: no micro-batch has a version."""
        self._batches.forget_all()

    def problem(self) -> str | None:
        """Why no newer version could be taken the last time."""
        return self._trouble

    def _take(self) -> str:
        """The version that counts, kept from here on."""
        key, error = take_or_fall_back(self._take_current, self._last, ModelError)
        words = f"The model {self.reference.name} goes on as it was before."
        self._trouble = None if error is None else f"{error.message} {words}"
        return key

    def _take_current(self) -> str:
        key = self._current()
        if not self._copies.has(key):
            self._copy_version(key)
        return key

    def _last(self) -> str | None:
        last = self._batches.last()
        return None if last is None else last.decode()

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

    def _copy_version(self, key: str) -> None:
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
        self._copies.keep(key, head + b"\n" + content)

    def _clear(self, batch_id: int) -> None:
        """Forget old micro-batches, and versions that none has."""
        self._batches.forget_until(batch_id - PINNED_BATCHES)
        pinned = (self._batches.find(batch) for batch in self._batches.batches())
        self._copies.forget_all_but({key.decode() for key in pinned if key is not None})


def artefact_of(directory: str, batch_id: int) -> tuple[Artefact, str]:
    """The model that scores a micro-batch, and what it is called; loaded once in each worker. Raises ModelError."""
    return _load(directory, _version(directory, batch_id))


def _version(directory: str, batch_id: int) -> str:
    try:
        key = _batches(Path(directory)).find(batch_id)
        reason = "it has none"
    except OSError as error:
        key, reason = None, error.strerror or str(error)
    if key is None:
        words = f"{directory} does not tell which version scores micro-batch {batch_id}: {reason}."
        raise ModelError("MODEL_DAMAGED", words, remedy="Remove the checkpoint, which begins anew.")
    return key.decode()


@lru_cache(maxsize=LOADED)
def _load(directory: str, key: str) -> tuple[Artefact, str]:
    copies = _copies(Path(directory))
    try:
        first, _, content = copies.read(key).partition(b"\n")
        head = msgspec.json.decode(first, type=_Head)
    except (OSError, msgspec.MsgspecError) as error:
        words = f"The kept model {copies.path(key)} cannot be read: {error}."
        raise ModelError("MODEL_DAMAGED", words, remedy="Remove the checkpoint, which begins anew.") from None
    return load_artefact(head.format, content, head.shown), head.shown


def _batches(directory: Path) -> BatchVersions:
    return BatchVersions(directory / "batches")


def _copies(directory: Path) -> VersionCopies:
    return VersionCopies(directory / "versions", _SUFFIX)
