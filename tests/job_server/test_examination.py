"""Programs are read in a process of their own: what they say, and what becomes of those that misbehave."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.job_server import examination
from millstream.job_server.examination import Examiner
from millstream.job_server.job_record import Submission
from millstream.model.errors import MillstreamError

pytestmark = pytest.mark.process

PROGRAM = """
from millstream.streams.sdk import StreamBuilder

builder = StreamBuilder("made")
builder.source("events", schema={"host": str}).filter("host <> 'LEFT'").print("shown")
builder.submit("http://127.0.0.1:1", name="made")
"""


@pytest.fixture
def examiner(tmp_path: Path) -> Examiner:
    return Examiner(tmp_path / "work", tmp_path / "checkpoints", "127.0.0.1:1")


def program(text: str) -> Submission:
    return Submission(name="made", kind="program", text=text)


async def test_a_program_is_read_and_does_not_hand_itself_in_again(examiner: Examiner) -> None:
    await examiner.bind(program(PROGRAM))


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("x = 1\n", "SQL_SCRIPT", "has no StreamBuilder"),
        ("raise OSError('broken')\n", "JOB_FAILED", "broken"),
        ("import os\nos._exit(3)\n", "ILLEGAL_JOB", "ended its process"),
        (PROGRAM.replace("host <>", "hots <>"), "SQL_UNKNOWN_COLUMN", "hots"),
    ],
)
async def test_a_program_that_is_no_job_is_refused(examiner: Examiner, text: str, name: str, words: str) -> None:
    with pytest.raises(MillstreamError) as refused:
        await examiner.bind(program(text))
    assert refused.value.name == name
    assert words in refused.value.message


async def test_a_program_that_runs_on_is_ended(examiner: Examiner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "EXAMINATION_S", 3.0)
    with pytest.raises(MillstreamError) as refused:
        await examiner.bind(program("import time\ntime.sleep(1000)\n"))
    assert refused.value.name == "ILLEGAL_JOB"


async def test_what_is_other_in_a_program_is_told_in_lines(examiner: Examiner) -> None:
    found = await examiner.compare(program(PROGRAM.replace("LEFT", "GONE")), program(PROGRAM), "made")
    assert [line[0] for line in found.difference] == ["-", "+"]
    assert "LEFT" in found.difference[0]
    assert "GONE" in found.difference[1]
    assert [one.fits for one in found.fits] == [True]
