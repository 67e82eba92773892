"""Examines a job's text in a separate process, because reading a program runs its code.

`python -m millstream.job_server.examination` reads one `_Question` in JSON from standard input and writes one
`_Answer` to standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from millstream.job_server.binding import (
    SAVEPOINT_SETTING,
    check_parts,
    give_parts,
    own_settings,
    plans_of_program,
    plans_of_script,
    program_file_name,
)
from millstream.job_server.driver import failure_of
from millstream.job_server.errors import JobServerError
from millstream.job_server.job_record import JobFailure, Submission
from millstream.model.errors import MillstreamError
from millstream.streams.plan.nodes import JobPlan

__all__ = ["EXAMINATION_S", "MAX_AT_A_TIME", "CheckpointFit", "Examiner", "Findings", "main"]

EXAMINATION_S: Final = 60.0
"""Seconds that a program may take to say what its jobs are."""

MAX_AT_A_TIME: Final = 2
"""Programs that are read at the same time at most; others wait."""


class CheckpointFit(msgspec.Struct, frozen=True):
    """What becomes of one checkpoint of the job."""

    checkpoint: str
    fits: bool
    words: str


class Findings(msgspec.Struct, frozen=True):
    """What was found: the lines of the plans that differ, - before and + now, and what becomes of each checkpoint."""

    difference: list[str] = []
    fits: list[CheckpointFit] = []

    def require_fit(self) -> None:
        """Raise CHECKPOINT_MISMATCH where a checkpoint is in the way."""
        for one in self.fits:
            if not one.fits:
                remedy = "Submit the other query under another name, or cancel this job and submit it again, anew."
                raise JobServerError("CHECKPOINT_MISMATCH", f"{one.words} The job runs on as it was.", remedy=remedy)

    def require_savepoint_fit(self) -> None:
        """Raise CHECKPOINT_MISMATCH where state of the savepoint is in the way."""
        for one in self.fits:
            if not one.fits:
                remedy = "Submit the query that the savepoint was made with, or leave the savepoint out to begin anew."
                raise JobServerError("CHECKPOINT_MISMATCH", f"{one.words} Nothing is started.", remedy=remedy)


class _Question(msgspec.Struct, frozen=True):
    wanted: Submission
    nameserver: str
    work: str
    before: Submission | None = None
    directory: str = ""
    is_running: bool = False


class _Answer(msgspec.Struct, frozen=True):
    found: Findings | None = None
    failure: JobFailure | None = None


class Examiner:
    """Starts the processes. `checkpoints` is the root of the jobs' checkpoints, `work` a directory for what passes."""

    def __init__(self, work: Path, checkpoints: Path, nameserver: str) -> None:
        self._work = work
        self._checkpoints = checkpoints
        self._nameserver = nameserver
        self._turns = asyncio.Semaphore(MAX_AT_A_TIME)

    async def bind(self, wanted: Submission) -> Findings:
        """Refuse a text that is no job; what becomes of the state of the savepoints that its plans begin from.

        Raises what `plans_of_program` raises, JobError SAVEPOINT_REFUSED, CHECKPOINT_DAMAGED.
        """
        return await self._ask(_Question(wanted, self._nameserver, str(self._work)))

    async def compare(
        self, wanted: Submission, before: Submission, directory: str, *, is_running: bool = False
    ) -> Findings:
        """What is other than before, for the job whose checkpoints lie in that directory below the root."""
        place = str(self._checkpoints / directory)
        return await self._ask(_Question(wanted, self._nameserver, str(self._work), before, place, is_running))

    async def _ask(self, question: _Question) -> Findings:
        async with self._turns:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "millstream.job_server.examination"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(EXAMINATION_S):
                    told, _ = await process.communicate(msgspec.json.encode(question))
            except TimeoutError:
                words = f"The program did not say within {EXAMINATION_S:.0f} s what its jobs are."
                raise JobServerError(
                    "ILLEGAL_JOB", words, remedy="Let it build its jobs without running them."
                ) from None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        try:
            answer = msgspec.json.decode(told, type=_Answer)
        except msgspec.MsgspecError:
            words = f"The program ended its process with {process.returncode} before it said what its jobs are."
            raise JobServerError("ILLEGAL_JOB", words) from None
        if answer.failure is not None:
            failure = answer.failure
            raise MillstreamError(failure.code, failure.message, remedy=failure.remedy)
        assert answer.found is not None
        return answer.found


def main() -> None:
    """The process."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=_Question)
    try:
        answer = _Answer(found=_examine(question))
    except Exception as error:  # noqa: BLE001 - the edge of the process: its parent raises it
        answer = _Answer(failure=failure_of(error))
    out.write(msgspec.json.encode(answer))
    out.flush()
    os._exit(0)


def _examine(question: _Question) -> Findings:
    Path(question.work).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=question.work) as scratch:
        now = _plans(question.wanted, question.nameserver, Path(scratch))
        if question.before is None:
            return Findings([], _savepoint_fits(now, question.nameserver))
        before = _plans(question.before, question.nameserver, Path(scratch))
    return _compare(before, now, question)


def _plans(given: Submission, nameserver: str, scratch: Path) -> list[JobPlan]:
    if given.kind == "sql":
        return plans_of_script(given.text, given.settings, nameserver)
    file = scratch / program_file_name(given.name)
    file.write_text(given.text, encoding="utf-8")
    return plans_of_program(file, own_settings(given.settings), file.stem)


def _savepoint_fits(plans: list[JobPlan], nameserver: str) -> list[CheckpointFit]:
    """What becomes of the savepoints that the plans name; none where they name none."""
    check_parts(plans)
    found: list[CheckpointFit] = []
    for plan in give_parts(plans):
        path = plan.settings.get(SAVEPOINT_SETTING, "")
        if not path:
            continue
        # Spark is imported only where it is needed: that takes seconds.
        from millstream.streams.jobs.plan_fit import fits
        from millstream.streams.jobs.savepoints.savepoint import check_savepoint

        check_savepoint(Path(path))
        found += [CheckpointFit(one.checkpoint, one.fits, one.words) for one in fits(Path(path), plan, nameserver)]
    return found


def _compare(before: list[JobPlan], now: list[JobPlan], question: _Question) -> Findings:
    from millstream.streams.jobs.plan_fit import fits, lines_of_job

    old, new = ([line for plan in plans for line in lines_of_job(plan, question.nameserver)] for plans in (before, now))
    # The first two lines name files, and there are none.
    told = list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:]
    changed = [line for line in told if not line.startswith("@@")]
    found = []
    for number, plan in enumerate(now):
        directory = Path(question.directory + (f"+{number}" if number else ""))
        found += [
            CheckpointFit(one.checkpoint, one.fits, one.words)
            for one in fits(directory, plan, question.nameserver, is_running=question.is_running)
        ]
    return Findings(changed, found)


if __name__ == "__main__":
    main()
