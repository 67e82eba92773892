"""The model store: one directory per model, with immutable versions and a current one.

`<model>/<number>.model` is a file of `VersionedFiles` with the magic `MSMODEL 1`: its line of JSON is a `ModelHead`,
its content the artefact as it was given. `<model>/current` is the one that counts, `<model>/removed` has the last
number of a removed model. `lock` names the process that writes.
"""

from __future__ import annotations

import re
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import msgspec

from millstream.store.files import FileLayer, SharedFiles
from millstream.streams.errors import ModelError
from millstream.streams.state.atomic_file import write_file
from millstream.streams.state.version_store import (
    LOCK_WAIT_S,
    MAX_WHY_CHARACTERS,
    VersionedFiles,
    lock_store,
    refuse_unwritable,
)

__all__ = ["FORMATS", "MAX_ARTEFACT_BYTES", "ModelHead", "ModelStore", "checked_name", "format_of"]

MAX_ARTEFACT_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of a model's artefact at most: it is read as a whole, once in each worker."""

FORMATS: Final = {"onnx": (".onnx",), "sklearn": (".joblib", ".pkl", ".pickle")}
"""The formats of artefacts with the ends of their files' names."""

_MAGIC = b"MSMODEL 1"
_SUFFIX = ".model"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class ModelHead(msgspec.Struct, frozen=True):
    """What is known of a version without reading it; `why` is what its writer said."""

    version: int
    time_ms: int
    format: str
    size_bytes: int
    why: str = ""


def format_of(file: Path) -> str | None:
    """The format that the end of a file's name says; None if it says none."""
    return next((name for name, ends in FORMATS.items() if file.suffix.lower() in ends), None)


class _Refusals:
    """Errors in the words of a store of models; `name` is the model that a reader or writer asks for."""

    def __init__(self, store: ModelStore, name: str = "") -> None:
        self._store = store
        self._name = name

    def explain_missing(self, number: int | None, numbers: list[int]) -> ModelError:
        if number is None or not numbers:
            names = self._store.names()
            there = f"it has {', '.join(names)}" if names else "it has none"
            words = f"The model store {self._store.directory} has no model {self._name}; {there}."
        else:
            there = ", ".join(map(str, numbers[-10:]))
            words = f"The model {self._name} has no version {number}; the newest are {there}."
        return ModelError("MODEL_NOT_FOUND", words)

    def explain_damage(self, path: Path, what: str) -> ModelError:
        return ModelError("MODEL_DAMAGED", f"The file {path} of the model store {what}.")

    def explain_lock(self, holder: str, wait_s: float) -> ModelError:
        directory = self._store.directory
        words = f"The model store {directory} is being changed by the process {holder}, for {wait_s:g} s already."
        return ModelError("MODEL_STORE_IN_USE", words)

    def explain_unwritable(self, reason: str) -> ModelError:
        words = f"The model store {self._store.directory} cannot be written: {reason}."
        return ModelError("MODEL_STORE_NOT_WRITABLE", words)


class ModelStore:
    """The models in `directory`, which need not be there before the first `publish`.

    Readers take no lock: they see the version before a change or the one after it. Damage is a ModelError
    MODEL_DAMAGED that names the file. `files` and `lock_wait_s` are for tests.
    """

    def __init__(self, directory: Path, *, files: FileLayer | None = None, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self.directory = directory
        self._files = files or SharedFiles()
        self._lock_wait_s = lock_wait_s

    def names(self) -> list[str]:
        """The models that have a version that counts."""
        found = (name for name in self._files.names(self.directory) if _NAME.fullmatch(name))
        return sorted(name for name in found if self._versions(name).has_current())

    def current(self, name: str) -> int:
        """The number of the version that counts. Raises MODEL_NOT_FOUND, MODEL_DAMAGED."""
        return self._versions(checked_name(name)).current()

    def load(self, name: str, version: int) -> tuple[ModelHead, bytes]:
        """A version and its artefact. Raises MODEL_NOT_FOUND, MODEL_DAMAGED."""
        return self._versions(checked_name(name)).read(version)

    def versions(self, name: str) -> list[ModelHead | ModelError]:
        """What is known of each version of a model, oldest first; an error stands for one that is damaged."""
        found: list[ModelHead | ModelError] = []
        versions = self._versions(checked_name(name))
        for number in versions.numbers():
            try:
                found.append(versions.read(number)[0])
            except ModelError as error:
                found.append(error)
        return found

    def publish(self, name: str, artefact: bytes, format: str, *, why: str = "") -> ModelHead:
        """The artefact as the next version of the model, which counts from now on; on the disk when this returns.

        Raises MODEL_REFUSED for a name, format or size that cannot be kept, MODEL_STORE_IN_USE where another process
        writes for longer than `LOCK_WAIT_S`, MODEL_STORE_NOT_WRITABLE; then nothing is changed.
        """
        checked_name(name)
        if format not in FORMATS:
            raise ModelError("MODEL_REFUSED", f"{format!r} is no format of models; there are {', '.join(FORMATS)}.")
        if not artefact or len(artefact) > MAX_ARTEFACT_BYTES:
            words = f"The model {name} has {len(artefact):,} bytes; 1 to {MAX_ARTEFACT_BYTES:,} can be kept."
            raise ModelError("MODEL_REFUSED", words)
        versions = self._versions(name)
        with self._lock():
            number = max([*versions.numbers(), self._last_removed(name)]) + 1
            head = ModelHead(number, time.time_ns() // 1_000_000, format, len(artefact), why[:MAX_WHY_CHARACTERS])
            versions.add(number, head, artefact)
        return head

    def rollback(self, name: str, version: int) -> ModelHead:
        """An older version, made the next one; also where what counts now is damaged."""
        head, artefact = self.load(name, version)
        return self.publish(name, artefact, head.format, why=f"as version {version}")

    def remove(self, name: str, version: int | None = None) -> list[int]:
        """Remove one version, which must not be the one that counts, or the model; the numbers that are gone.

        Raises MODEL_NOT_FOUND, MODEL_REFUSED. Running jobs keep the versions that they use.
        """
        versions, refusals = self._versions(checked_name(name)), _Refusals(self, name)
        with self._lock():
            numbers = versions.numbers()
            if version is None and numbers:
                with refuse_unwritable(refusals):
                    # The numbers go on from here, so that none means two models.
                    write_file(self._removed_path(name), b"%d" % max(numbers), files=self._files)
                versions.discard_all()
                return numbers
            if version is None or version not in numbers:
                raise refusals.explain_missing(version, numbers)
            if version == versions.current():
                words = f"Version {version} of the model {name} is the one that counts."
                raise ModelError("MODEL_REFUSED", words, remedy="Publish or roll back to another one first.")
            versions.discard([version])
        return [version]

    def _versions(self, name: str) -> VersionedFiles[ModelHead, ModelError]:
        directory = self.directory / name
        refusals = _Refusals(self, name)
        return VersionedFiles(directory, directory / "current", _SUFFIX, _MAGIC, ModelHead, refusals, files=self._files)

    def _removed_path(self, name: str) -> Path:
        return self.directory / name / "removed"

    def _last_removed(self, name: str) -> int:
        """The greatest number of a model of that name that was removed; 0 for none."""
        path = self._removed_path(name)
        text = self._files.read_all(path) if self._files.exists(path) else b"0"
        return int(text) if text.isdigit() else 0

    def _lock(self) -> AbstractContextManager[None]:
        return lock_store(self.directory, _Refusals(self), files=self._files, wait_s=self._lock_wait_s)


def checked_name(name: str) -> str:
    """The name, where a model may be called so. Raises ModelError MODEL_REFUSED."""
    if _NAME.fullmatch(name) is None:
        words = f"{name!r} is no name of a model."
        raise ModelError("MODEL_REFUSED", words, remedy="Use a letter, then letters, digits, _ and -; 64 at most.")
    return name
