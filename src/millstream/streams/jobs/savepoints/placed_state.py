"""State of operators that lies in another place: taken into a savepoint, and put there from one."""

from __future__ import annotations

import re
import shutil
import uuid
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Final

import msgspec

from millstream.streams.errors import JobError
from millstream.streams.jobs.identity import OWNER_FILE, CopyOwner
from millstream.streams.spark.operators.arrow_files import ArrowStateFiles
from millstream.streams.state.atomic_file import write_file

__all__ = ["is_of_batch", "put_state", "take_state"]

_VERSION: Final = re.compile(r"(\d+)\.")
_OPERATORS: Final = "operators"
_CHECKPOINT: Final = "checkpoint"


def is_of_batch(name: str, batch_id: int) -> bool:
    """Whether the state after a micro-batch has the file of that name; later ones are of one that will be repeated."""
    version = _VERSION.match(name)
    return version is not None and int(version[1]) <= batch_id


def take_state(location: str, operator: str, target: Path, batch_id: int, *, is_ahead: bool = False) -> None:
    """Let the directory `target` have the state of an operator after a micro-batch that is over.

    Files that it has are not read again, as those of a micro-batch that is over never change. `is_ahead` takes what is
    there while the job goes on and removes some. `location` is where the query keeps its state. Raises OSError.
    """
    files = ArrowStateFiles(location).within(_OPERATORS, operator)
    wanted = {name for name in files.sizes() if is_of_batch(name, batch_id)}
    target.mkdir(parents=True, exist_ok=True)
    present = {file.name for file in target.iterdir()}
    for name in present - wanted:
        (target / name).unlink()
    for name in sorted(wanted - present):
        with suppress(FileNotFoundError) if is_ahead else nullcontext():
            (target / name).write_bytes(files.read(name))


def put_state(query: Path, location: str, names: tuple[str, str]) -> None:
    """Move the state of a query that begins from its directory to its place below `location`, and note that.

    `names` are those of the job and of the query. Raises JobError CHECKPOINT_MISMATCH where a job of that name has a
    copy there, STATE_DENIED for no address; OSError.
    """
    place = ArrowStateFiles.at(location).within(*names)
    if place.within(_CHECKPOINT).sizes():
        words = f"A job of that name has a copy of its checkpoint in {place.location}."
        raise JobError("CHECKPOINT_MISMATCH", words, remedy="Give the job another name, or remove what is there.")
    for operator in sorted((query / _OPERATORS).glob("*")):
        files = place.within(_OPERATORS, operator.name)
        # Without a copy of a checkpoint beside them they are of a start from a savepoint that was cut off.
        for name in files.sizes():
            files.delete(name)
        for file in sorted(operator.iterdir()):
            files.write(file.name, file.read_bytes())
    shutil.rmtree(query / _OPERATORS, ignore_errors=True)
    write_file(query / OWNER_FILE, msgspec.json.encode(CopyOwner(uuid.uuid4().hex, "", place.location)))
