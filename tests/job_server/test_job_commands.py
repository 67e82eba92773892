"""`millstream job submit` and the commands for what a job server keeps, as users see them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from test_job_server import SCRIPT, ask, submit, until

from conftest import Served
from millstream.cli.main import main
from millstream.job_server import job_service
from millstream.job_server.examination import CheckpointFit, Findings
from patience import eventually


async def command(served: Served, *words: str) -> int:
    """The exit code of one command."""
    return await asyncio.to_thread(main, ["job", *words, "--server", served.url])


async def test_a_script_is_submitted_under_its_files_name_with_what_it_asks_for(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "detect.sql"
    file.write_text(SCRIPT)
    given = ("--cores", "2", "--memory", "1.5", "--set", "millstream.max-rows-per-trigger=5")
    assert await command(served, "submit", str(file), *given) == 1
    assert "1.5" in capsys.readouterr().err
    assert await command(served, "submit", str(file), *given[:2], "--memory", "2g", *given[4:], "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["job"] == "detect"
    found = await ask(served.client.describe, "detect")
    assert found["demand"] == {"cores": 2, "memory_mb": 2048}
    assert found["settings"] == {"millstream.max-rows-per-trigger": "5"}


async def test_jobs_are_listed_described_and_changed(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    await submit(served)
    await until(served, "a", "running")
    assert await command(served, "list", "-o", "json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["job"], row["state"], row["rows_in"]) == ("a", "running", None)
    assert await command(served, "describe", "a", "-o", "table") == 0
    assert "wanted       running, generation 1" in capsys.readouterr().out
    assert await command(served, "logs", "a", "--lines", "1") == 0
    assert capsys.readouterr().out == "line 2\n"
    for words, state in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        assert await command(served, words, "a") == 0
        await until(served, "a", state)


async def test_a_refusal_is_told_with_its_number_and_a_server_that_is_not_there_by_the_exit_code(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command(served, "pause", "nobody") == 1
    assert "[MS-6020]" in capsys.readouterr().err
    assert await asyncio.to_thread(main, ["job", "list", "--server", "http://127.0.0.1:1"]) == 3
    assert "millstream start jobs" in capsys.readouterr().err


@pytest.mark.parametrize("fit", [True, False])
async def test_an_update_is_shown_before_it_is_done_and_refused_where_the_state_does_not_fit(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fit: bool
) -> None:
    async def compare(*_given: Any, **_named: Any) -> Findings:
        return Findings(["-  old", "+  new"], [CheckpointFit("numbers", fit, "So it is.")])

    monkeypatch.setattr(job_service.Examiner, "compare", compare)
    await submit(served)
    await until(served, "a", "running")
    file = tmp_path / "b.sql"
    file.write_text(SCRIPT.replace("SELECT n", "SELECT n + 1"))
    assert await command(served, "update", "a", str(file), "-o", "table") == 0
    shown = capsys.readouterr().out
    assert "-  old\n+  new\nnumbers: So it is.\n" in shown
    assert ("--apply does it" in shown) is fit
    assert (await ask(served.client.describe, "a"))["generation"] == 1
    assert await command(served, "update", "a", str(file), "--apply", "-o", "table") == (0 if fit else 1)
    found = await ask(served.client.describe, "a")
    assert found["generation"] == (2 if fit else 1)
    assert ("n + 1" in found["text"]) is fit
    if fit:
        # The driver is told to stop it, and then gets it anew.
        await eventually(lambda: served.drivers.running[0].starts == [["a"], ["a"]])
    else:
        assert "[MS-6004]" in capsys.readouterr().err
        assert found["state"] == "running"
