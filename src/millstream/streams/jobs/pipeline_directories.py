"""Groups the outputs of a job into queries, with a checkpoint directory for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, TypeVar

from millstream.streams.errors import JobError
from millstream.streams.jobs.identity import IDENTITY_FILE, read_identity

__all__ = ["NO_TABLES", "group_by_tables", "pipeline_directories"]

NO_TABLES: Final = "(none)"
"""The tables of outputs that read none, and the directory of their checkpoint."""

_ANEW = "Give the job another name, or go back to the old query."

_Item = TypeVar("_Item")


def group_by_tables(items: Sequence[_Item], tables_of: Callable[[_Item], Collection[str]]) -> list[list[_Item]]:
    """The items that read any table together, in the order of the items."""
    groups: list[tuple[set[str], list[_Item]]] = []
    for item in items:
        names = set(tables_of(item)) or {NO_TABLES}
        together = [group for group in groups if group[0] & names]
        if not together:
            groups.append((names, [item]))
            continue
        first = together[0]
        for other in together[1:]:
            first[0].update(other[0])
            first[1].extend(other[1])
            groups.remove(other)
        first[0].update(names)
        first[1].append(item)
    order = {id(item): place for place, item in enumerate(items)}
    return [sorted(members, key=lambda item: order[id(item)]) for _, members in groups]


def pipeline_directories(job: Path, queries: Sequence[Sequence[str]]) -> list[Path]:
    """The checkpoint of each query of a job, which is known by its tables in order.

    A query that reads other tables than before goes on in the directory of the one that read some of them. Raises
    JobError CHECKPOINT_MISMATCH where one has become two, or two have become one.
    """
    own = [job / ("+".join(tables) or NO_TABLES) for tables in queries]
    # What lies there under its own name is nobody else's.
    before = {
        file.parent: set(identity.starts)
        for file in sorted(job.glob(f"*/{IDENTITY_FILE}"))
        if (identity := read_identity(file.parent)) is not None and identity.state is not None
    }
    found: list[Path] = []
    for directory, tables in zip(own, queries, strict=True):
        if directory in before or (directory / IDENTITY_FILE).exists():
            found.append(directory)
            continue
        like = [one for one, names in before.items() if names & set(tables) and one not in own]
        if len(like) > 1:
            words = (
                f"The tables {', '.join(tables)} were read by {len(like)} queries of the job, and are read by one now."
            )
            raise JobError("CHECKPOINT_MISMATCH", words, remedy=_ANEW)
        found.append(like[0] if like else directory)
    if len(set(found)) < len(found):
        twice = next(one for one in found if found.count(one) > 1)
        words = f"The tables of {twice} were read by one query of the job, and are read by several now."
        raise JobError("CHECKPOINT_MISMATCH", words, remedy=_ANEW)
    return found
