"""Stages in a worker: how many are kept, and what the garbage collector sees of them."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.rules.conditions import Truth
from millstream.streams.rules.rule import Rule, RuleSet
from millstream.streams.rules.store import RuleStore
from millstream.streams.spark.rules.kept_versions import KeptVersions
from millstream.streams.spark.rules.stages import KEPT_STAGES, KeptStages, VersionStage
from millstream.streams.spark.rules.task_report import Judged


def test_the_collector_sees_everything_again_with_a_new_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, judged = RuleStore(tmp_path / "store"), Judged(str(tmp_path / "store"), str(tmp_path / "job"))
    kept, made, calls = KeptVersions(Path(judged.directory), Path(judged.store)), [], []
    monkeypatch.setattr(gc, "unfreeze", lambda: calls.append("unfreeze"))

    def make(judged: Judged, rule_set: RuleSet, without: frozenset[str]) -> VersionStage:
        made.append(rule_set.version)
        return VersionStage(judged, rule_set, without)

    stages = KeptStages(make)
    for version in range(1, KEPT_STAGES + 2):
        rules = RuleSet(version, (Rule(f"r{version}", "", Truth(True)),))
        store.publish(lambda _before, rules=rules: rules)
        kept.take()
        calls.clear()
        for _ in range(3):
            assert stages.of(judged, version).version == version
        assert calls == ["unfreeze"]
    assert made == [1, 2, 3]
    stages.of(judged, 1)
    assert made == [1, 2, 3, 1]
