"""What a job relies on when Spark repeats a micro-batch is on the disk, with the name of every directory above it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from disk_records import recorded_disk

from millstream.streams.connectors.filesystem.source import Listing
from millstream.streams.dimension.pins import BatchPins
from millstream.streams.dimension.versions import Loaded, VersionStore
from millstream.streams.jobs.checkpoint import Checkpoint
from millstream.streams.jobs.outputs import Output
from millstream.streams.jobs.shared_queries.cohorts import Cohort
from millstream.streams.learning import pinned_model as kept
from millstream.streams.learning.model import ModelReference
from millstream.streams.learning.store import ModelStore
from millstream.streams.rules.conditions import Op, Predicate
from millstream.streams.rules.rule import Rule, RuleSet
from millstream.streams.rules.store import RuleStore
from millstream.streams.spark.rules.kept_versions import KeptVersions


def test_published_rules_and_what_a_job_keeps_of_them_survive(tmp_path: Path) -> None:
    with recorded_disk() as disk:
        RuleStore(tmp_path / "a" / "rules").publish(
            lambda _: RuleSet(0, (Rule("a", "A", Predicate("x", Op.IN, ("1",))),))
        )
        KeptVersions(tmp_path / "job" / "hits", tmp_path / "a" / "rules").take()
        assert disk.lost(tmp_path) == []


def test_a_published_model_and_the_version_of_a_micro_batch_survive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "load_artefact", lambda *_: _AnyArtefact())
    with recorded_disk() as disk:
        ModelStore(tmp_path / "a" / "models").publish("fraud", b"one", "onnx")
        reference = ModelReference("fraud", ("x",), store=str(tmp_path / "a" / "models"), stored="fraud")
        kept.PinnedModel(tmp_path / "job" / "models", reference, [], []).begin(0)
        assert disk.lost(tmp_path) == []


def test_a_loaded_table_and_the_version_of_a_micro_batch_survive(tmp_path: Path) -> None:
    with recorded_disk() as disk:
        store = VersionStore(tmp_path / "tables" / "assets")
        store.load(lambda _: Loaded(0, 0))
        BatchPins(tmp_path / "job" / "pins", store, "job").version(0)
        assert disk.lost(tmp_path) == []


def test_the_identity_of_a_job_survives(tmp_path: Path) -> None:
    with recorded_disk() as disk:
        Checkpoint.open(tmp_path / "jobs" / "one", "fingerprint", dict)
        assert disk.lost(tmp_path) == []


def test_which_query_jobs_share_survives(tmp_path: Path) -> None:
    def start(_: object) -> Any:
        return None

    members: dict[Path, list[Output]] = {tmp_path / "jobs" / name: [] for name in ("one", "two")}
    with recorded_disk() as disk:
        Cohort(tmp_path, "query", members, start)
        assert disk.lost(tmp_path) == []


def test_the_order_of_a_directorys_files_survives(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("{}")
    with recorded_disk() as disk:
        Listing(tmp_path / "job" / "files" / "seen.json", tmp_path / "in", "").look()
        assert [path for path in disk.lost(tmp_path) if not path.startswith("in")] == []


class _AnyArtefact:
    def check(self, *_: object) -> None:
        """Every declaration fits."""
