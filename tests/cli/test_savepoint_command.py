"""`millstream job savepoint`, as scripts use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millstream.cli.main import main
from millstream.streams.jobs.identity import JobIdentity, write_identity
from millstream.streams.jobs.state_fit import PlannedSource, PlanState, StateRecord


@pytest.fixture
def job(tmp_path: Path) -> Path:
    state = StateRecord.fresh(PlanState(sources=(PlannedSource("t", "topic=t"),), sinks=("out",)))
    start = {"queues": {"b/0": 3}, "cut_ms": 0, "ended": False, "name": "t", "wakes": 0}
    write_identity(tmp_path / "job" / "t", JobIdentity("id", "plan", {"t": start}, ["Output out"], state=state))
    return tmp_path / "job"


def test_a_savepoint_is_written_and_described(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "savepoint", str(job), str(tmp_path / "saved"), "--name", "first"]) == 0
    written = capsys.readouterr().out
    assert "Savepoint first of job job" in written
    assert "Query t: no micro-batch of its own" in written
    assert main(["job", "savepoint", "--describe", str(tmp_path / "saved")]) == 0
    assert capsys.readouterr().out == written
    assert main(["job", "savepoint", "--describe", str(tmp_path / "saved"), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["queries"][0]["positions"]["t"]["queues"]) == ("first", {"b/0": 3})


def test_a_savepoint_is_refused_by_number_or_usage(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["job", "savepoint", str(job)]) == 2
    assert main(["job", "savepoint", str(job), str(tmp_path)]) == 1
    assert "MS-6009" in capsys.readouterr().err
    assert main(["job", "savepoint", str(tmp_path / "nothing"), str(tmp_path / "saved")]) == 1
    assert "MS-6004" in capsys.readouterr().err
    assert main(["job", "savepoint", "--describe", str(tmp_path / "saved")]) == 1
    assert "MS-6009" in capsys.readouterr().err
