"""`millstream model`, as scripts use it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Ran

from millstream.cli.main import main
from millstream.server.child import ServerProcess
from millstream.streams.jobs.environment import ModelTopic
from millstream.streams.learning.model import ModelReference

pytestmark = pytest.mark.process


joblib = pytest.importorskip("joblib", reason="scikit-learn is not installed: millstream[learning]")


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    from sklearn.linear_model import LinearRegression

    path = tmp_path / "line.joblib"
    joblib.dump(LinearRegression().fit([[0.0], [1.0]], [0.0, 2.0]), path)
    return path


def test_models_are_published_listed_rolled_back_and_removed(
    artefact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_MODELS", str(tmp_path / "models"))
    assert main(["model", "publish", "line", str(artefact), "--why", "first"]) == 0
    assert main(["model", "publish", "line", str(artefact)]) == 0
    assert main(["model", "rollback", "line", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "line\t3\t1"
    assert main(["model", "list", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["version"], row["counts"], row["format"], row["why"]) for row in rows] == [
        (1, False, "sklearn", "first"),
        (2, False, "sklearn", ""),
        (3, True, "sklearn", "as version 1"),
    ]
    assert main(["model", "remove", "line", "3"]) == 1
    assert "the one that counts" in capsys.readouterr().err
    assert main(["model", "remove", "line"]) == 0
    assert main(["model", "list", "line"]) == 1
    assert "[MS-9101]" in capsys.readouterr().err


def test_a_file_that_is_no_model_is_not_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("no model")
    store = str(tmp_path / "models")
    assert main(["model", "publish", "notes", str(file), "--store", store]) == 1
    assert "does not say the format" in capsys.readouterr().err
    assert main(["model", "publish", "notes", str(file), "--store", store, "--format", "sklearn"]) == 1
    assert "no model of scikit-learn that can be loaded" in capsys.readouterr().err
    assert not (tmp_path / "models").exists()


def test_a_model_that_is_sent_to_a_topic_is_its_newest_version(
    millstream: Callable[..., Ran], server: ServerProcess, tmp_path: Path
) -> None:
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.linear_model import LinearRegression

    estimator = LinearRegression().fit([[0.0], [1.0]], [0.0, 2.0])
    content = skl2onnx.convert_sklearn(estimator, initial_types=[("x", FloatTensorType([None, 1]))]).SerializeToString()
    (tmp_path / "line.onnx").write_bytes(content)
    (tmp_path / "none.onnx").write_bytes(b"no model")
    assert millstream("topic", "create", "models", "--compacted").code == 0
    sent = millstream("model", "send", "line", str(tmp_path / "line.onnx"), "--topic", "models", "-o", "json")
    assert json.loads(sent.out)["model"] == "line"
    refused = millstream("model", "send", "line", str(tmp_path / "none.onnx"), "--topic", "models")
    assert refused.code == 1
    assert "MS-91" in refused.err
    reference = ModelReference("line", ("x",), topic="models", stored="line")
    version, artefact = ModelTopic.of(reference, server.addresses.nameserver).newest()
    assert artefact == content
    assert version.endswith("-0")
