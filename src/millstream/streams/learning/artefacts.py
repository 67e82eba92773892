"""Loaded models of ONNX and scikit-learn that score columns, and the files they may come from."""

from __future__ import annotations

import importlib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from millstream.streams.errors import ModelError
from millstream.streams.plan.types import DataType, Field, TypeKind

__all__ = [
    "PATHS_VARIABLE",
    "Artefact",
    "check_trusted",
    "check_trusted_topic",
    "convert_outputs",
    "load_artefact",
    "read_artefact",
]


PATHS_VARIABLE: Final = "MILLSTREAM_MODEL_PATHS"
"""Names the directories (parted by a colon) from which alone models are taken; blank or not set: from all."""

_RUNS_CODE: Final = ("sklearn",)


def check_trusted(path: Path, format: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raises ModelError MODEL_NOT_TRUSTED for a file or store outside of the directories that are allowed.

    A file whose loading runs code is refused as well where every user of the machine may change it. OSError where it
    is not there.
    """
    allowed = [Path(one).resolve() for one in environment.get(PATHS_VARIABLE, "").split(os.pathsep) if one]
    found = path.resolve()
    if allowed and not any(found.is_relative_to(one) for one in allowed):
        words = f"{path} is in none of the directories that {PATHS_VARIABLE} names: {', '.join(map(str, allowed))}."
        raise ModelError("MODEL_NOT_TRUSTED", words)
    if format in _RUNS_CODE and path.stat().st_mode & stat.S_IWOTH:
        words = f"Loading {path} runs code that it holds, and every user of this machine may change it."
        raise ModelError("MODEL_NOT_TRUSTED", words, remedy=f"Take that away: chmod o-w {path}.")


def check_trusted_topic(topic: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raises ModelError MODEL_NOT_TRUSTED where models are taken from certain directories alone."""
    if environment.get(PATHS_VARIABLE):
        words = f"The topic {topic} is none of the directories that {PATHS_VARIABLE} names."
        raise ModelError("MODEL_NOT_TRUSTED", words, remedy="Use a store in one of them.")


def read_artefact(path: Path, format: str) -> bytes:
    """The content of a file that may be read. Raises MODEL_NOT_FOUND, MODEL_NOT_TRUSTED."""
    try:
        check_trusted(path, format)
        return path.read_bytes()
    except OSError as error:
        words = f"The model {path} cannot be read: {error.strerror}."
        raise ModelError("MODEL_NOT_FOUND", words, remedy="Name a file that is there and may be read.") from None


_MODULES = {"onnx": ("onnx_artefact", "onnxruntime"), "sklearn": ("sklearn_artefact", "sklearn")}


class Artefact(Protocol):
    """A model that is loaded."""

    def check(self, inputs: Sequence[Field], outputs: Sequence[Field]) -> None:
        """Raises ModelError MODEL_REFUSED where the declared columns do not fit the model."""
        ...

    def score(self, columns: Sequence[list[Any]], inputs: Sequence[Field], outputs: Sequence[Field]) -> list[list[Any]]:
        """Of each output its values, one for each row, as Python has them. `columns` hold no NULL; at least one row."""
        ...


def load_artefact(format: str, content: bytes, shown: str) -> Artefact:
    """The artefact. Raises ModelError MODEL_REFUSED for one that cannot be loaded; `shown` is what it is called there.

    Loading one of scikit-learn runs the code that it holds.
    """
    module, package = _MODULES[format]
    try:
        importlib.import_module(package)
    except ImportError:
        words = f"The model {shown} needs {package}, which is not installed."
        raise ModelError("MODEL_REFUSED", words, remedy='Install it: pip install "millstream[learning]".') from None
    artefact: Artefact = importlib.import_module(f"millstream.streams.learning.{module}").load(content, shown)
    return artefact


def convert_outputs(values: Sequence[Any], data_type: DataType) -> list[Any]:
    """The values of an output as its declared type has them. Raises TypeError, ValueError."""
    kind = data_type.kind
    if kind is TypeKind.ARRAY:
        (element,) = data_type.elements
        return [
            convert_outputs(list(value.values()) if isinstance(value, dict) else value, element) for value in values
        ]
    if kind is TypeKind.STRING:
        return [str(value) for value in values]
    if kind is TypeKind.BOOLEAN:
        return [bool(value) for value in values]
    if data_type.is_integer:
        return [int(value) for value in values]
    return [float(value) for value in values]
