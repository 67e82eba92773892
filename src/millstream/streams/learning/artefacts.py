"""Artefacts in memory: models of ONNX and scikit-learn that score columns of values, many rows at once."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

from millstream.streams.errors import ModelError
from millstream.streams.plan.types import DataType, Field, TypeKind

__all__ = ["Artefact", "convert_outputs", "load_artefact"]

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
