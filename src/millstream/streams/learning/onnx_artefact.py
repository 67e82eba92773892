"""ONNX models: one tensor with a column per feature, or a named tensor per feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from millstream.streams.errors import ModelError
from millstream.streams.learning.artefacts import convert_outputs
from millstream.streams.plan.types import Field, TypeKind

__all__ = ["OnnxArtefact", "load"]

_TYPES: dict[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}


def load(content: bytes, shown: str) -> OnnxArtefact:
    """The model. Raises ModelError MODEL_REFUSED."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Each worker scores by itself; threads of its own would only take the others' turns.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - the library has errors of its own, of no common kind
        raise ModelError("MODEL_REFUSED", f"{shown} is no ONNX model that can be loaded: {error}") from None
    return OnnxArtefact(session, shown)


class OnnxArtefact:
    """A session of onnxruntime, on one thread."""

    def __init__(self, session: Any, shown: str) -> None:
        self._session = session
        self._shown = shown
        self._inputs = session.get_inputs()
        self._outputs = [one.name for one in session.get_outputs()]

    def check(self, inputs: Sequence[Field], outputs: Sequence[Field]) -> None:
        """Raises ModelError MODEL_REFUSED where the declared columns do not fit the model."""
        unknown = [one.name for one in self._inputs if one.type not in _TYPES]
        if unknown:
            raise self._explain_refusal(f"its input {unknown[0]} is of the type {self._inputs[0].type}")
        names = [one.name for one in inputs]
        if len(self._inputs) == 1:
            width = self._inputs[0].shape[-1] if self._inputs[0].shape else None
            if isinstance(width, int) and width != len(inputs):
                raise self._explain_refusal(f"it takes {width} columns, and INPUT declares {len(inputs)}")
        elif sorted(names) != sorted(one.name for one in self._inputs):
            wanted = ", ".join(one.name for one in self._inputs)
            raise self._explain_refusal(f"it takes {wanted}, and INPUT declares {', '.join(names)}")
        missing = [one.name for one in outputs if one.name not in self._outputs]
        if missing and len(outputs) > len(self._outputs):
            raise self._explain_refusal(
                f"it gives {', '.join(self._outputs)}, and OUTPUT declares {len(outputs)} columns"
            )

    def score(self, columns: Sequence[list[Any]], inputs: Sequence[Field], outputs: Sequence[Field]) -> list[list[Any]]:
        """Of each output its values, one for each row."""
        if len(self._inputs) == 1:
            (only,) = self._inputs
            matrix = np.column_stack([np.asarray(column, dtype=_TYPES[only.type]) for column in columns])
            fed = {only.name: matrix[:, 0] if len(only.shape) == 1 else matrix}
        else:
            given = dict(zip((one.name for one in inputs), columns, strict=True))
            fed = {one.name: _tensor(given[one.name], one) for one in self._inputs}
        found = self._session.run(self._names(outputs), fed)
        return [
            convert_outputs(_values(values, one.type.kind is TypeKind.ARRAY), one.type)
            for values, one in zip(found, outputs, strict=True)
        ]

    def _names(self, outputs: Sequence[Field]) -> list[str]:
        """The model's outputs by their names, else by their places."""
        names = [one.name for one in outputs]
        return names if set(names) <= set(self._outputs) else self._outputs[: len(names)]

    def _explain_refusal(self, words: str) -> ModelError:
        return ModelError("MODEL_REFUSED", f"The model {self._shown} does not fit CREATE MODEL: {words}.")


def _tensor(column: list[Any], wanted: Any) -> Any:
    values = np.asarray(column, dtype=_TYPES[wanted.type])
    return values if len(wanted.shape) == 1 else values.reshape(-1, 1)


def _values(values: Any, listed: bool) -> Any:
    """One value for each row: lists of a matrix, its only column, or its last one (of two classes the second)."""
    if isinstance(values, list):
        return values if listed or not values or not isinstance(values[0], dict) else [_last(one) for one in values]
    if values.ndim == 2 and not listed:
        return values[:, -1].tolist()
    return values.tolist()


def _last(classes: dict[Any, Any]) -> Any:
    return list(classes.values())[-1]
