"""The store of models: a directory with one directory for each model, of immutable versions and the one that counts.

`<model>/<number>.model`: the words `MSMODEL 1`, the SHA-256 of all that follows, a line of JSON about the version
(`ModelHead`), and the artefact as it was given. `<model>/current`: the words `MSCURRENT 1`, the number and its SHA-256.
`lock` names the process that writes. Numbers only grow: `<model>/removed` has the last one of a removed model.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from millstream.model.errors import StartRefused
from millstream.store.directory_lock import DirectoryLock
from millstream.store.files import FileLayer, SharedFiles
from millstream.streams.errors import ModelError

__all__ = ["FORMATS", "LOCK_WAIT_S", "MAX_ARTEFACT_BYTES", "ModelHead", "ModelStore", "checked_name", "format_of"]

LOCK_WAIT_S: Final = 10.0
"""Seconds that a change of a model store waits for another one to end."""

MAX_ARTEFACT_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of a model's artefact at most: it is read as a whole, once in each worker."""

FORMATS: Final = {"onnx": (".onnx",), "sklearn": (".joblib", ".pkl", ".pickle")}
"""The formats of artefacts with the ends of their files' names."""

_MAGIC, _CURRENT_MAGIC = b"MSMODEL 1", b"MSCURRENT 1"
_SUFFIX = ".model"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_MAX_WHY_CHARACTERS = 1000
_LOCK_PAUSE_S = 0.05


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
        return sorted(name for name in found if self._files.exists(self._current_path(name)))

    def current(self, name: str) -> int:
        """The number of the version that counts. Raises MODEL_NOT_FOUND, MODEL_DAMAGED."""
        path = self._current_path(checked_name(name))
        try:
            content = self._files.read_all(path)
        except FileNotFoundError:
            raise self._not_found(name) from None
        except OSError as error:
            raise _damaged(path, f"cannot be read: {error.strerror}") from None
        magic, _, rest = content.rstrip(b"\n").partition(b"\n")
        number, _, checksum = rest.partition(b" ")
        if magic != _CURRENT_MAGIC or not number.isdigit() or checksum != _checksum(number):
            raise _damaged(path, "is damaged")
        return int(number)

    def load(self, name: str, version: int) -> tuple[ModelHead, bytes]:
        """A version and its artefact. Raises MODEL_NOT_FOUND, MODEL_DAMAGED."""
        path = self._path(checked_name(name), version)
        try:
            content = self._files.read_all(path)
        except FileNotFoundError:
            raise self._no_version(name, version) from None
        except OSError as error:
            raise _damaged(path, f"cannot be read: {error.strerror}") from None
        first, _, rest = content.partition(b"\n")
        if first != _MAGIC + b" " + _checksum(rest):
            raise _damaged(path, "is damaged")
        head, _, artefact = rest.partition(b"\n")
        try:
            return msgspec.json.decode(head, type=ModelHead), artefact
        except msgspec.MsgspecError as error:
            raise _damaged(path, f"cannot be read by this release: {error}") from None

    def versions(self, name: str) -> list[ModelHead | ModelError]:
        """What is known of each version of a model, oldest first; an error stands for one that is damaged."""
        found: list[ModelHead | ModelError] = []
        for number in self._numbers(checked_name(name)):
            try:
                found.append(self.load(name, number)[0])
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
        with self._locked():
            number = max([*self._numbers(name), self._removed(name)]) + 1
            head = ModelHead(number, time.time_ns() // 1_000_000, format, len(artefact), why[:_MAX_WHY_CHARACTERS])
            rest = msgspec.json.encode(head) + b"\n" + artefact
            with self._writing():
                self._files.make_directory(self.directory / name)
                self._files.replace(self._path(name, number), _MAGIC + b" " + _checksum(rest) + b"\n" + rest)
                text = b"%d" % number
                content = _CURRENT_MAGIC + b"\n" + text + b" " + _checksum(text) + b"\n"
                self._files.replace(self._current_path(name), content)
        return head

    def rollback(self, name: str, version: int) -> ModelHead:
        """An older version, made the next one; also where what counts now is damaged."""
        head, artefact = self.load(name, version)
        return self.publish(name, artefact, head.format, why=f"as version {version}")

    def remove(self, name: str, version: int | None = None) -> list[int]:
        """Remove one version, which must not be the one that counts, or the model; the numbers that are gone.

        Raises MODEL_NOT_FOUND, MODEL_REFUSED. Running jobs keep the versions that they use.
        """
        checked_name(name)
        with self._locked():
            numbers = self._numbers(name)
            if not numbers:
                raise self._not_found(name)
            if version is None:
                with self._writing():
                    # The numbers go on from here, so that none means two models.
                    self._files.replace(self._removed_path(name), b"%d" % max(numbers))
                    # Without it there is no model; what a crash leaves behind is removed by the next attempt.
                    self._files.discard(self._current_path(name))
                    for number in numbers:
                        self._files.discard(self._path(name, number))
                return numbers
            if version not in numbers:
                raise self._no_version(name, version)
            if version == self.current(name):
                words = f"Version {version} of the model {name} is the one that counts."
                raise ModelError("MODEL_REFUSED", words, remedy="Publish or roll back to another one first.")
            with self._writing():
                self._files.discard(self._path(name, version))
        return [version]

    def _current_path(self, name: str) -> Path:
        return self.directory / name / "current"

    def _removed_path(self, name: str) -> Path:
        return self.directory / name / "removed"

    def _removed(self, name: str) -> int:
        """The greatest number of a model of that name that was removed; 0 for none."""
        path = self._removed_path(name)
        text = self._files.read_all(path) if self._files.exists(path) else b"0"
        return int(text) if text.isdigit() else 0

    def _path(self, name: str, version: int) -> Path:
        return self.directory / name / f"{version}{_SUFFIX}"

    def _numbers(self, name: str) -> list[int]:
        stems = (one.removesuffix(_SUFFIX) for one in self._files.names(self.directory / name) if one.endswith(_SUFFIX))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        end_s = time.monotonic() + self._lock_wait_s
        while True:
            try:
                lock = DirectoryLock(self.directory, self._files)
                break
            except StartRefused as refused:
                if refused.name != "DATA_DIRECTORY_IN_USE":
                    raise self._not_writable(refused.__cause__ or refused) from None
                if time.monotonic() >= end_s:
                    words = f"The model store {self.directory} is being changed, for {self._lock_wait_s:g} s already."
                    raise ModelError("MODEL_STORE_IN_USE", words) from None
            time.sleep(_LOCK_PAUSE_S)
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._not_writable(error) from error

    def _not_writable(self, error: BaseException) -> ModelError:
        reason = error.strerror if isinstance(error, OSError) else None
        return ModelError(
            "MODEL_STORE_NOT_WRITABLE", f"The model store {self.directory} cannot be written: {reason or error}."
        )

    def _not_found(self, name: str) -> ModelError:
        names = self.names()
        there = f"it has {', '.join(names)}" if names else "it has none"
        return ModelError("MODEL_NOT_FOUND", f"The model store {self.directory} has no model {name}; {there}.")

    def _no_version(self, name: str, version: int) -> ModelError:
        numbers = self._numbers(name)
        if not numbers:
            return self._not_found(name)
        there = ", ".join(map(str, numbers[-10:]))
        return ModelError("MODEL_NOT_FOUND", f"The model {name} has no version {version}; the newest are {there}.")


def checked_name(name: str) -> str:
    """The name, where a model may be called so. Raises ModelError MODEL_REFUSED."""
    if _NAME.fullmatch(name) is None:
        words = f"{name!r} is no name of a model."
        raise ModelError("MODEL_REFUSED", words, remedy="Use a letter, then letters, digits, _ and -; 64 at most.")
    return name


def _damaged(path: Path, what: str) -> ModelError:
    return ModelError("MODEL_DAMAGED", f"The file {path} of the model store {what}.")


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
