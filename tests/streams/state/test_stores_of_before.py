"""Stores and jobs of before are read, go on with the next numbers, and keep what their micro-batches used."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from stores_of_before import FILES, write_files

from millstream.streams.dimension.pins import BatchPins
from millstream.streams.dimension.versions import Loaded, VersionStore, WholeLoad
from millstream.streams.errors import ModelError
from millstream.streams.learning import pinned_model as kept
from millstream.streams.learning.model import ModelReference
from millstream.streams.learning.store import ModelHead, ModelStore
from millstream.streams.rules.rule import RuleSet
from millstream.streams.rules.store import RuleSetHead, RuleStore
from millstream.streams.spark.rules.kept_versions import KeptVersions


@pytest.fixture
def before(tmp_path: Path) -> Path:
    write_files(tmp_path)
    return tmp_path


def test_a_store_of_rules_is_read_and_goes_on(before: Path) -> None:
    store = RuleStore(before / "rules")
    assert store.current() == 2
    assert [rule.id for rule in store.load(1).rules] == ["a"]
    assert [rule.id for rule in store.latest().rules] == ["a", "b"]
    assert store.versions() == [
        RuleSetHead(1, 1795656494803, 1, 1, "the first"),
        RuleSetHead(2, 1795656494824, 2, 2),
    ]
    assert store.publish(lambda rules: RuleSet(0, rules.rules[:1])).version == 3


def test_the_rules_that_a_job_keeps_judge_its_replay(before: Path) -> None:
    versions = KeptVersions(before / "job" / "hits-rules", before / "gone")
    assert versions.numbers() == [2]
    assert [rule.id for rule in versions.load(2).rules] == ["a", "b"]
    assert versions.take() == 2
    assert "holds no rules" in (versions.trouble() or "")


def test_a_store_of_models_is_read_and_goes_on(before: Path) -> None:
    store = ModelStore(before / "models")
    assert store.names() == ["fraud"]
    assert store.load("fraud", 1) == (ModelHead(1, 1795656494867, "onnx", 6, "the first"), b"\x00one\n\xff")
    assert store.load("fraud", store.current("fraud"))[1] == b"two"
    assert store.publish("fraud", b"three", "onnx").version == 3
    assert store.publish("churn", b"another", "onnx").version == 2


def test_the_models_that_a_job_keeps_score_its_replay(before: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[object, ...]] = []
    monkeypatch.setattr(kept, "load_artefact", lambda *artefact: loaded.append(artefact))
    # The store's place is part of what the job's directory is called.
    reference = ModelReference("fraud", ("x",), store="/data/models", stored="fraud")
    model = kept.PinnedModel(before / "job" / "models", reference, [], [])
    for batch in (0, 1, 2, 3):
        model.begin(batch)
        kept.artefact_of(str(model.directory), batch)
    first = ("onnx", b"\x00one\n\xff", "fraud (version 1 of fraud)")
    assert loaded == [first, ("sklearn", b"two", "fraud (version 2 of fraud)")]
    assert "goes on as it was before" in (model.problem() or "")
    with pytest.raises(ModelError, match="does not tell which version scores micro-batch 4: it has none"):
        kept.artefact_of(str(model.directory), 4)


def test_a_dimension_table_is_read_and_goes_on(before: Path) -> None:
    store = VersionStore(before / "tables" / "assets")
    head = store.current()
    assert head is not None
    assert (head.version, head.rows, head.size_bytes, head.stamp, head.ends) == (3, 3, 4, "stamp", {"b/0": 7})
    assert (head.changed, head.whole) == (1, WholeLoad(5, 6))
    assert [one.version for one in store.versions()] == [1, 2, 3]
    assert (store.directory_of(3) / "rows").read_text() == "rows"
    note, trouble = store.note(), store.load_failure()
    assert note is not None
    assert note.columns == ("id", "name")
    assert trouble is not None
    assert trouble.words == "The database does not answer."
    assert store.versions_by_job() == {"job": (2, 3)}
    loaded = store.load(lambda _: Loaded(0, 0))
    assert loaded is not None
    assert loaded.version == 4


def test_the_versions_of_a_table_that_a_job_pinned_are_used_again(before: Path) -> None:
    store = VersionStore(before / "tables" / "assets")
    pins = BatchPins(before / "job" / "pins", store, "job")
    assert pins.batches() == {3: 2, 4: 3}
    store.load(lambda _: Loaded(0, 0))
    assert [pins.version(batch).version for batch in (3, 4, 5)] == [2, 3, 4]


def test_what_is_written_has_the_layout_of_before(
    before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time_ns", iter((1795656494867_000_000, 1795656494887_000_000)).__next__)
    models = ModelStore(tmp_path / "anew" / "models")
    models.publish("fraud", b"\x00one\n\xff", "onnx", why="the first")
    models.publish("fraud", b"two", "sklearn")
    for name in ("1.model", "2.model", "current"):
        assert (models.directory / "fraud" / name).read_bytes() == FILES[f"models/fraud/{name}"]
    store = VersionStore(before / "tables" / "assets")
    pins = BatchPins(tmp_path / "anew" / "pins", store, "job")
    pins.version(4)
    assert (tmp_path / "anew" / "pins" / "4.pin").read_bytes() == FILES["job/pins/4.pin"]
    assert (store.directory / "pins" / "job.json").read_bytes() == msgspec.json.encode(
        {"versions": [3], "notes": str(tmp_path / "anew" / "pins")}
    )
    KeptVersions(tmp_path / "anew" / "hits", before / "rules").take()
    kept_rules = tmp_path / "anew" / "hits" / "versions" / "2.json"
    assert kept_rules.read_bytes() == FILES["job/hits-rules/versions/2.json"]
