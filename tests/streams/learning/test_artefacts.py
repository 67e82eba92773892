"""Artefacts: what models say of columns, which declared columns they refuse, and which files are not trusted."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from millstream.streams.errors import ModelError
from millstream.streams.learning.artefacts import PATHS_VARIABLE, check_trusted, load_artefact, read_artefact
from millstream.streams.plan.types import BIGINT, DOUBLE, STRING, DataType, Field, TypeKind

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed: millstream[learning]")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: millstream[learning]")

AB = [Field("a", DOUBLE), Field("b", DOUBLE)]
SIDES = DataType(TypeKind.ARRAY, elements=(DOUBLE,))
ROWS = [[0.0, 0.0], [0.0, 1.0], [10.0, 0.0], [10.0, 1.0]]
LOW_HIGH = [[1.0, 9.0], [0.0, 1.0]]


def kept(estimator: Any) -> bytes:
    import joblib

    out = io.BytesIO()
    joblib.dump(estimator, out)
    return out.getvalue()


def tree(answers: Sequence[Any] = (0, 0, 1, 1), rows: Any = ROWS) -> Any:
    """It asks whether `a` is above 5, and nothing else."""
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(max_depth=1, random_state=0).fit(rows, list(answers))


def onnx(estimator: Any) -> bytes:
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    from skl2onnx.common.data_types import FloatTensorType

    model = skl2onnx.convert_sklearn(estimator, initial_types=[("features", FloatTensorType([None, 2]))])
    content: bytes = model.SerializeToString()
    return content


def scored(format: str, content: bytes, outputs: list[Field], columns: Any = LOW_HIGH) -> Any:
    artefact = load_artefact(format, content, "m")
    artefact.check(AB, outputs)
    return artefact.score(columns, AB, outputs)


def test_a_classifier_predicts_in_the_declared_type() -> None:
    assert scored("sklearn", kept(tree()), [Field("side", BIGINT)]) == [[0, 1]]
    assert scored("sklearn", kept(tree("nnyy")), [Field("side", STRING)]) == [["n", "y"]]


def test_outputs_are_methods_by_their_names() -> None:
    outputs = [Field("predict", BIGINT), Field("predict_proba", DOUBLE)]
    assert scored("sklearn", kept(tree()), outputs) == [[0, 1], [0.0, 1.0]]
    assert scored("sklearn", kept(tree()), [Field("predict_proba", SIDES)]) == [[[1.0, 0.0], [0.0, 1.0]]]


def test_onnx_says_the_same_by_name_and_by_place() -> None:
    content = onnx(tree())
    assert scored("onnx", content, [Field("output_label", BIGINT)]) == [[0, 1]]
    assert scored("onnx", content, [Field("side", BIGINT), Field("chance", DOUBLE)]) == [[0, 1], [0.0, 1.0]]
    assert scored("onnx", content, [Field("side", BIGINT), Field("chances", SIDES)])[1] == [[1.0, 0.0], [0.0, 1.0]]


def test_columns_are_found_by_the_names_that_a_model_was_trained_with() -> None:
    pandas = pytest.importorskip("pandas")
    model = tree(rows=pandas.DataFrame(ROWS, columns=["b", "a"]))
    artefact = load_artefact("sklearn", kept(model), "m")
    assert artefact.score([[0.0, 1.0], [1.0, 9.0]], AB, [Field("side", BIGINT)]) == [[0, 1]]
    with pytest.raises(ModelError, match="it takes b, a, and INPUT declares a, c"):
        artefact.check([Field("a", DOUBLE), Field("c", DOUBLE)], [Field("side", BIGINT)])


@pytest.mark.parametrize(
    ("inputs", "outputs", "words"),
    [
        (AB[:1], [Field("side", BIGINT)], "it takes 2 columns, and INPUT declares 1"),
        (AB, [Field("decision_function", DOUBLE)], "DecisionTreeClassifier has no decision_function"),
        (AB, [Field("one", BIGINT), Field("two", BIGINT)], "one and two would be the same"),
    ],
)
def test_declared_columns_that_do_not_fit_are_refused(inputs: list[Field], outputs: list[Field], words: str) -> None:
    with pytest.raises(ModelError, match=words) as refused:
        load_artefact("sklearn", kept(tree()), "m").check(inputs, outputs)
    assert refused.value.name == "MODEL_REFUSED"


def test_an_onnx_model_with_another_number_of_columns_or_outputs_is_refused() -> None:
    artefact = load_artefact("onnx", onnx(tree()), "m")
    with pytest.raises(ModelError, match="it takes 2 columns, and INPUT declares 1"):
        artefact.check(AB[:1], [Field("side", BIGINT)])
    with pytest.raises(ModelError, match="OUTPUT declares 3 columns"):
        artefact.check(AB, [Field(name, DOUBLE) for name in "xyz"])


@pytest.mark.parametrize("format", ["onnx", "sklearn"])
def test_what_is_no_model_is_refused_in_words(format: str) -> None:
    with pytest.raises(ModelError, match=r"here\.bin is no") as refused:
        load_artefact(format, b"no model", "here.bin")
    assert refused.value.name == "MODEL_REFUSED"


def test_a_pickle_of_something_else_is_refused() -> None:
    with pytest.raises(ModelError, match="holds a dict, which predicts nothing"):
        load_artefact("sklearn", kept({"a": 1}), "m")


def test_models_are_taken_from_the_named_directories_alone(tmp_path: Path) -> None:
    inside, outside = tmp_path / "trusted" / "a.onnx", tmp_path / "other" / "b.onnx"
    for path in (inside, outside):
        path.parent.mkdir()
        path.write_bytes(b"x")
    sneaky = tmp_path / "trusted" / "link.onnx"
    sneaky.symlink_to(outside)
    environment = {PATHS_VARIABLE: os.pathsep.join(["/nowhere", str(tmp_path / "trusted")])}
    check_trusted(inside, "onnx", environment)
    check_trusted(outside, "onnx", {})
    for path in (outside, sneaky):
        with pytest.raises(ModelError) as refused:
            check_trusted(path, "onnx", environment)
        assert refused.value.name == "MODEL_NOT_TRUSTED"


def test_a_pickle_that_everybody_may_change_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.joblib"
    path.write_bytes(b"x")
    path.chmod(0o666)
    with pytest.raises(ModelError, match="every user of this machine may change it"):
        read_artefact(path, "sklearn")
    assert read_artefact(path, "onnx") == b"x"
    path.chmod(0o644)
    assert read_artefact(path, "sklearn") == b"x"


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as refused:
        read_artefact(tmp_path / "m.onnx", "onnx")
    assert refused.value.name == "MODEL_NOT_FOUND"
