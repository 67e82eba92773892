"""Binds the text of a job to its plans; SQL scripts need no Spark for this."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from millstream.job_server.errors import JobServerError
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.sql.session.compiler import JobCommand, PrintCommand, SqlSession

__all__ = [
    "MAX_PLANS",
    "SAVEPOINT_SETTING",
    "check_parts",
    "give_parts",
    "own_settings",
    "plans_of_program",
    "plans_of_script",
    "program_file_name",
]

MAX_PLANS: Final = 200
"""INSERTs of one job at most, each statement set counted once."""

SAVEPOINT_SETTING: Final = "execution.state-recovery.path"
"""The setting of the directory of the savepoint that a job begins from."""


def own_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings without those of Spark itself, which are for its session."""
    return {name: value for name, value in settings.items() if not name.startswith("spark.")}


def program_file_name(job: str) -> str:
    """The name of the file of a job's program: a module's name, other than that of each other job."""
    return f"job_{re.sub(r'[^A-Za-z0-9_]', '_', job)}_{hashlib.sha256(job.encode()).hexdigest()[:8]}.py"


def plans_of_script(text: str, settings: Mapping[str, str], nameserver: str) -> list[JobPlan]:
    """The plans of a script, one for each INSERT or statement set. Raises SqlError; JobServerError ILLEGAL_JOB."""
    session = SqlSession(nameserver=nameserver)
    for name, value in own_settings(settings).items():
        session.set(name, value)
    plans: list[JobPlan] = []
    for command in session.compile(text):
        if isinstance(command, QueryPlan | PrintCommand):
            words = "The rows of a SELECT or PRINT have nobody to be shown to."
            raise JobServerError("ILLEGAL_JOB", words, remedy="Write INSERT INTO a table; one of 'print' writes a log.")
        if isinstance(command, JobCommand):
            words = f"{command.action} of jobs is nothing that a job does."
            raise JobServerError("ILLEGAL_JOB", words, remedy="Leave it out of the script.")
        if isinstance(command, JobPlan):
            plans.append(command)
    return _check_plans(plans, "The script has no INSERT.")


def plans_of_program(file: Path, settings: Mapping[str, str], name: str) -> list[JobPlan]:
    """The plans of a program, one for each StreamBuilder. Runs the program's own code.

    Raises what `jobs_of_program` raises; JobServerError ILLEGAL_JOB.
    """
    from millstream.streams.sdk.program import jobs_of_program

    found = jobs_of_program(file, own_settings(settings), name=name)
    return _check_plans([plan for _, plan in found], "The main() of the program gives no StreamBuilder.")


def _check_plans(plans: list[JobPlan], nothing: str) -> list[JobPlan]:
    if not plans:
        raise JobServerError("ILLEGAL_JOB", nothing)
    if len(plans) > MAX_PLANS:
        raise JobServerError("ILLEGAL_JOB", f"The job has {len(plans)} INSERTs; {MAX_PLANS} are taken.")
    return plans


def give_parts(plans: list[JobPlan]) -> list[JobPlan]:
    """The plans, each with its own part of the savepoint that they begin from, if they do.

    Plans that came to the job later have no part of it.
    """
    from millstream.streams.jobs.savepoints.savepoint_parts import count_parts

    found = []
    for number, plan in enumerate(plans):
        path = plan.settings.get(SAVEPOINT_SETTING, "")
        count = count_parts(Path(path)) if path else None
        if count is not None:
            part = str(Path(path) / str(number)) if number < count else ""
            plan = replace(plan, settings={**plan.settings, SAVEPOINT_SETTING: part})
        found.append(plan)
    return found


def check_parts(plans: list[JobPlan]) -> None:
    """Refuse to begin from a savepoint of a job with more or fewer plans. Raises JobServerError SAVEPOINT_REFUSED."""
    from millstream.streams.jobs.savepoints.savepoint_parts import count_parts

    for path in dict.fromkeys(plan.settings.get(SAVEPOINT_SETTING, "") for plan in plans):
        count = count_parts(Path(path)) if path else None
        if count not in (None, len(plans)):
            words = f"The savepoint {path} is of a job with {count} INSERTs, and the job has {len(plans)}."
            remedy = f"Give the job as many INSERTs in the same order, or name one part, such as {Path(path) / '0'}."
            raise JobServerError("SAVEPOINT_REFUSED", words, remedy=remedy)
