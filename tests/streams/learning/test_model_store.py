"""The store of models: versions that never change, damage told with the file, two writers kept apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash.file_twins import HastyFiles

from millstream.store.directory_lock import DirectoryLock
from millstream.store.files import FileLayer
from millstream.streams.errors import ModelError
from millstream.streams.learning.store import ModelHead, ModelStore, format_of


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "models", files=HastyFiles())


def test_what_is_published_counts_and_older_versions_stay(store: ModelStore) -> None:
    first = store.publish("fraud", b"one", "onnx", why="the first")
    second = store.publish("fraud", b"two", "sklearn")
    assert (first.version, first.format, first.size_bytes, first.why) == (1, "onnx", 3, "the first")
    assert store.current("fraud") == second.version == 2
    assert store.load("fraud", 1) == (first, b"one")
    assert store.load("fraud", 2) == (second, b"two")
    assert store.versions("fraud") == [first, second]
    assert store.names() == ["fraud"]


def test_a_rollback_is_the_older_version_under_the_next_number(store: ModelStore) -> None:
    for content in (b"one", b"two"):
        store.publish("fraud", content, "onnx")
    assert store.rollback("fraud", 1).version == 3
    assert store.current("fraud") == 3
    assert store.load("fraud", 3)[1] == b"one"
    assert store.load("fraud", 3)[0].why == "as version 1"


def test_a_rollback_mends_a_version_that_is_damaged(store: ModelStore) -> None:
    for content in (b"one", b"two"):
        store.publish("fraud", content, "onnx")
    path = store.directory / "fraud" / "2.model"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(ModelError, match=r"2\.model") as refused:
        store.load("fraud", 2)
    assert refused.value.name == "MODEL_DAMAGED"
    assert [type(one) for one in store.versions("fraud")] == [ModelHead, ModelError]
    store.rollback("fraud", 1)
    assert store.load("fraud", store.current("fraud"))[1] == b"one"


def test_the_version_that_counts_stays_and_others_can_go(store: ModelStore) -> None:
    for content in (b"one", b"two"):
        store.publish("fraud", content, "onnx")
    with pytest.raises(ModelError, match="the one that counts"):
        store.remove("fraud", 2)
    assert store.remove("fraud", 1) == [1]
    with pytest.raises(ModelError, match="no version 1; the newest are 2"):
        store.load("fraud", 1)


def test_a_model_that_is_removed_is_not_found_and_those_that_are_there_are_named(store: ModelStore) -> None:
    store.publish("fraud", b"one", "onnx")
    store.publish("churn", b"one", "onnx")
    assert store.remove("churn") == [1]
    assert store.names() == ["fraud"]
    with pytest.raises(ModelError, match="no model churn; it has fraud") as refused:
        store.current("churn")
    assert refused.value.name == "MODEL_NOT_FOUND"
    assert store.publish("churn", b"another", "onnx").version == 2


@pytest.mark.parametrize("name", ["", "../up", "a b", "1st", "x" * 65])
def test_a_name_that_is_no_name_of_a_directory_is_refused(store: ModelStore, name: str) -> None:
    with pytest.raises(ModelError) as refused:
        store.publish(name, b"one", "onnx")
    assert refused.value.name == "MODEL_REFUSED"
    assert not store.directory.exists()


@pytest.mark.parametrize(("content", "format"), [(b"", "onnx"), (b"x", "tensorflow")])
def test_an_empty_artefact_and_an_unknown_format_are_refused(store: ModelStore, content: bytes, format: str) -> None:
    with pytest.raises(ModelError) as refused:
        store.publish("fraud", content, format)
    assert refused.value.name == "MODEL_REFUSED"


def test_two_writers_are_kept_apart(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, lock_wait_s=0.0)
    lock = DirectoryLock(tmp_path, FileLayer())
    try:
        with pytest.raises(ModelError) as refused:
            store.publish("fraud", b"one", "onnx")
    finally:
        lock.release()
    assert refused.value.name == "MODEL_STORE_IN_USE"
    assert store.publish("fraud", b"one", "onnx").version == 1


def test_the_format_is_told_by_the_end_of_the_name() -> None:
    assert [format_of(Path(name)) for name in ("a.onnx", "a.joblib", "b.PKL", "c.txt", "d")] == [
        *("onnx", "sklearn", "sklearn"),
        *(None, None),
    ]
