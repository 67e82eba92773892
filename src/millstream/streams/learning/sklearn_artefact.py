"""scikit-learn models in joblib or pickle format. Loading one executes code from the file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from millstream.streams.errors import ModelError
from millstream.streams.learning.artefacts import convert_outputs
from millstream.streams.plan.types import Field, TypeKind

__all__ = ["METHODS", "SklearnArtefact", "load"]

METHODS: Final = ("predict", "predict_proba", "decision_function", "score_samples")
"""What an output that is called so holds; one with another name holds `predict`."""


def load(content: bytes, shown: str) -> SklearnArtefact:
    """The model. Raises ModelError MODEL_REFUSED."""
    import joblib

    try:
        estimator = joblib.load(io.BytesIO(content))
    except Exception as error:  # noqa: BLE001 - a pickle may raise anything
        words = f"{shown} is no model of scikit-learn that can be loaded: {type(error).__name__}: {error}."
        raise ModelError("MODEL_REFUSED", words, remedy="Load it with the releases that it was kept with.") from None
    if not any(hasattr(estimator, method) for method in METHODS):
        words = f"{shown} holds a {type(estimator).__name__}, which predicts nothing."
        raise ModelError("MODEL_REFUSED", words, remedy="Keep a fitted estimator or pipeline.")
    return SklearnArtefact(estimator, shown)


class SklearnArtefact:
    """A fitted estimator or pipeline."""

    def __init__(self, estimator: Any, shown: str) -> None:
        self._estimator = estimator
        self._shown = shown
        names = getattr(estimator, "feature_names_in_", None)
        self._names: list[str] | None = None if names is None else [str(name) for name in names]

    def check(self, inputs: Sequence[Field], outputs: Sequence[Field]) -> None:
        """Raises ModelError MODEL_REFUSED where the declared columns do not fit the model."""
        names = [one.name for one in inputs]
        if self._names is not None:
            if sorted(self._names) != sorted(names):
                raise self._explain_refusal(f"it takes {', '.join(self._names)}, and INPUT declares {', '.join(names)}")
        else:
            count = getattr(self._estimator, "n_features_in_", len(inputs))
            if count != len(inputs):
                raise self._explain_refusal(f"it takes {count} columns, and INPUT declares {len(inputs)}")
        for one in outputs:
            method = _method(one.name)
            if not hasattr(self._estimator, method):
                raise self._explain_refusal(
                    f"a {type(self._estimator).__name__} has no {method} for the output {one.name}"
                )
        predicted = [one.name for one in outputs if _method(one.name) == "predict"]
        if len(predicted) > 1:
            words = f"{' and '.join(predicted)} would be the same; outputs are called {', '.join(METHODS)}"
            raise self._explain_refusal(words)

    def score(self, columns: Sequence[list[Any]], inputs: Sequence[Field], outputs: Sequence[Field]) -> list[list[Any]]:
        """Of each output its values, one for each row."""
        rows = self._rows(columns, inputs)
        scored = []
        for one in outputs:
            values = np.asarray(getattr(self._estimator, _method(one.name))(rows))
            if values.ndim == 2 and one.type.kind is not TypeKind.ARRAY:
                # Of two classes the second one's; of more the greatest says how sure the prediction is.
                values = values[:, -1] if values.shape[1] <= 2 else values.max(axis=1)
            scored.append(convert_outputs(values.tolist(), one.type))
        return scored

    def _rows(self, columns: Sequence[list[Any]], inputs: Sequence[Field]) -> Any:
        if self._names is not None:
            import pandas

            given = dict(zip((one.name for one in inputs), columns, strict=True))
            return pandas.DataFrame({name: given[name] for name in self._names})
        numeric = all(one.type.is_number or one.type.kind is TypeKind.BOOLEAN for one in inputs)
        kept = [np.asarray(column, dtype=np.float64 if numeric else np.object_) for column in columns]
        return np.column_stack(kept)

    def _explain_refusal(self, words: str) -> ModelError:
        return ModelError("MODEL_REFUSED", f"The model {self._shown} does not fit CREATE MODEL: {words}.")


def _method(name: str) -> str:
    return name.lower() if name.lower() in METHODS else "predict"
