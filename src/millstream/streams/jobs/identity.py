"""The identity file of a checkpoint: its job, start position and state description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.streams.jobs.state_fit import StateRecord
from millstream.streams.operators.key_groups import FIRST_KEY_GROUPS
from millstream.streams.state.atomic_file import write_file

__all__ = [
    "IDENTITY_FILE",
    "OWNER_FILE",
    "SHARED_FILE",
    "CopyOwner",
    "JobIdentity",
    "read_identity",
    "read_owner",
    "shared_query",
    "write_identity",
]

IDENTITY_FILE: Final = "job.json"

OWNER_FILE: Final = "mirror.json"
"""Beside it where the checkpoint has a copy elsewhere."""

SHARED_FILE: Final = "shared"
"""Beside it where the job shares a query with others: the name of the query's directory below the root of all jobs."""


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """What a checkpoint knows of its job. `starts` are positions as JSON, by table.

    `state` is None where an earlier release wrote the file. `generation` counts the changes of the query: each has a
    log of Spark's of its own. `origin` names the savepoint that it began with.
    """

    id: str
    fingerprint: str
    starts: Mapping[str, dict[str, Any]]
    plan: list[str] = field(default_factory=list)
    key_groups: int = FIRST_KEY_GROUPS
    state: StateRecord | None = None
    generation: int = 0
    origin: str = ""

    @property
    def spark(self) -> str:
        """The directory of Spark's checkpoint, within the job's."""
        return "spark" if self.generation == 0 else f"spark-{self.generation}"


def read_identity(directory: Path) -> JobIdentity | None:
    """The identity of the checkpoint in `directory`; None if there is none."""
    file = directory / IDENTITY_FILE
    return msgspec.json.decode(file.read_bytes(), type=JobIdentity) if file.exists() else None


def write_identity(directory: Path, identity: JobIdentity) -> None:
    """Put the identity in the place of the one before; it is on the disk when this returns."""
    write_file(directory / IDENTITY_FILE, msgspec.json.encode(identity))


class CopyOwner(msgspec.Struct, frozen=True):
    """Who writes the copy of this directory, and whose it goes on from.

    `operators` is where operators keep their state; blank where it lies in this directory.
    """

    owner: str
    follows: str = ""
    operators: str = ""


def read_owner(directory: Path) -> CopyOwner | None:
    """Who writes the copy of the checkpoint in `directory`; None if it has no copy."""
    try:
        return msgspec.json.decode((directory / OWNER_FILE).read_bytes(), type=CopyOwner)
    except FileNotFoundError:
        return None


def shared_query(directory: Path) -> str | None:
    """The name of the query that the job with that checkpoint shares; None if it shares none."""
    file = directory / SHARED_FILE
    return file.read_text() if file.exists() else None
