"""The versions of a model beside a checkpoint: one for each micro-batch, also where it is repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.streams.errors import ModelError
from millstream.streams.learning.model import ModelReference
from millstream.streams.learning.pinned_model import PINNED_BATCHES, PinnedModel, artefact_of
from millstream.streams.learning.store import ModelStore
from millstream.streams.plan.types import DOUBLE, Field

joblib = pytest.importorskip("joblib", reason="scikit-learn is not installed: millstream[learning]")
INPUTS, OUTPUTS = [Field("x", DOUBLE)], [Field("y", DOUBLE)]


def line(directory: Path, slope: float) -> bytes:
    """A model that multiplies by `slope`."""
    from sklearn.linear_model import LinearRegression

    path = directory / "line.joblib"
    joblib.dump(LinearRegression().fit([[0.0], [1.0]], [0.0, slope]), path)
    return path.read_bytes()


def kept(directory: Path, store: ModelStore) -> PinnedModel:
    reference = ModelReference("line", ("x",), store=str(store.directory), stored="line")
    return PinnedModel(directory / "job", reference, INPUTS, OUTPUTS)


def scored(model: PinnedModel, batch_id: int) -> float:
    artefact, _ = artefact_of(str(model.directory), batch_id)
    value = artefact.score([[1.0]], INPUTS, OUTPUTS)[0][0]
    return round(value, 6)


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    store = ModelStore(tmp_path / "store")
    store.publish("line", line(tmp_path, 2.0), "sklearn")
    return store


def test_a_new_version_scores_from_the_next_micro_batch_on_and_a_repeated_one_has_its_old_version(
    store: ModelStore, tmp_path: Path
) -> None:
    model = kept(tmp_path, store)
    model.begin(0)
    store.publish("line", line(tmp_path, 3.0), "sklearn")
    model.begin(1)
    again = kept(tmp_path, store)
    again.begin(0)
    again.begin(1)
    assert [scored(again, 0), scored(again, 1)] == [2.0, 3.0]


def test_a_replay_needs_no_store(store: ModelStore, tmp_path: Path) -> None:
    model = kept(tmp_path, store)
    model.begin(0)
    store.remove("line")
    again = kept(tmp_path, store)
    again.begin(0)
    assert scored(again, 0) == 2.0
    again.begin(1)
    assert scored(again, 1) == 2.0
    assert "no model line" in (again.problem() or "")


def test_a_version_that_does_not_fit_is_not_taken_and_the_one_before_goes_on(store: ModelStore, tmp_path: Path) -> None:
    model = kept(tmp_path, store)
    model.begin(0)
    store.publish("line", b"damaged goods", "sklearn")
    model.begin(1)
    assert scored(model, 1) == 2.0
    assert "goes on as it was before" in (model.problem() or "")
    store.publish("line", line(tmp_path, 5.0), "sklearn")
    model.begin(2)
    assert scored(model, 2) == 5.0
    assert model.problem() is None


def test_a_job_does_not_start_with_a_model_that_cannot_be_taken(store: ModelStore, tmp_path: Path) -> None:
    reference = ModelReference("line", ("x", "z"), store=str(store.directory), stored="line")
    two = [*INPUTS, Field("z", DOUBLE)]
    with pytest.raises(ModelError, match="it takes 1 columns, and INPUT declares 2"):
        PinnedModel(tmp_path / "job", reference, two, OUTPUTS).begin(0)


def test_a_file_that_is_replaced_is_a_new_version(tmp_path: Path) -> None:
    file = tmp_path / "model.joblib"
    file.write_bytes(line(tmp_path, 2.0))
    model = PinnedModel(
        tmp_path / "job", ModelReference("line", ("x",), file=str(file), format="sklearn"), INPUTS, OUTPUTS
    )
    model.begin(0)
    other = tmp_path / "other"
    other.write_bytes(line(tmp_path, 7.0) + b"\0")
    other.replace(file)
    model.begin(1)
    assert [scored(model, 0), scored(model, 1)] == [2.0, 7.0]


def test_old_micro_batches_and_versions_that_none_has_are_forgotten(store: ModelStore, tmp_path: Path) -> None:
    model = kept(tmp_path, store)
    model.begin(0)
    store.publish("line", line(tmp_path, 3.0), "sklearn")
    for batch_id in range(1, PINNED_BATCHES + 1):
        model.begin(batch_id)
    assert len(list((model.directory / "batches").iterdir())) == PINNED_BATCHES
    assert [path.name for path in (model.directory / "versions").iterdir()] == ["2.artefact"]


def test_a_run_that_begins_anew_takes_what_counts_now(store: ModelStore, tmp_path: Path) -> None:
    model = kept(tmp_path, store)
    model.begin(0)
    store.publish("line", line(tmp_path, 3.0), "sklearn")
    model.forget()
    model.begin(0)
    assert scored(model, 0) == 3.0
