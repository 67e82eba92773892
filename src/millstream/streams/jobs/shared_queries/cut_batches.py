"""Micro-batches of shared queries that were cut short, as by a driver that died: who shared the query finishes them.

A sink knows the rows of an attempt by the query, the place of its output in it and the micro-batch. Other outputs would
write rows of the same micro-batch again, or take those of another output for their own. So before jobs join a query
again, or leave it, the jobs that began the micro-batch finish it.
"""

from __future__ import annotations

import io
import logging
import pickle
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.model.errors import MillstreamError
from millstream.streams.jobs.adoption import DeliveryNote
from millstream.streams.jobs.checkpoint import Checkpoint
from millstream.streams.jobs.pipeline import Pipeline
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.state.atomic_file import PRIVATE_FILES, write_file

__all__ = ["FINISH_LIMIT_S", "MAX_FINISHES", "SharedPlans", "finish_cut_batch", "note_plans", "read_plans"]

SharedPlans = Sequence[tuple[str, JobPlan]]
"""Names and plans of the jobs of a query, in the order of their outputs."""

FINISH_LIMIT_S: Final = 120.0
"""Seconds in which a micro-batch that was cut short must be over."""

MAX_FINISHES: Final = 2
"""How often it is tried: a job that kills its driver within the micro-batch must not keep the others from going on."""

_PLANS_FILE: Final = "plans"
_TRIES_FILE: Final = "finishes.json"
_LOOK_S: Final = 0.1
_PLAIN_CLASSES: Final = frozenset({("builtins", "frozenset"), ("builtins", "set"), ("decimal", "Decimal")})

_log = logging.getLogger(__name__)


def note_plans(directory: Path, plans: SharedPlans) -> None:
    """Keep who shares the query with its checkpoint in `directory` from its next micro-batch on."""
    if read_plans(directory) != list(plans):
        # Options of tables may be keys of access.
        write_file(directory / _PLANS_FILE, pickle.dumps(list(plans)), files=PRIVATE_FILES)


def read_plans(directory: Path) -> list[tuple[str, JobPlan]] | None:
    """What `note_plans` kept; None where there is nothing, or what this release cannot read."""
    try:
        found = _PlanReader(io.BytesIO((directory / _PLANS_FILE).read_bytes())).load()
    except FileNotFoundError:
        return None
    except (pickle.UnpicklingError, AttributeError, ImportError, EOFError, IndexError, TypeError, ValueError) as error:
        _log.warning("The plans in %s cannot be read: %s", directory, error)
        return None
    return found if isinstance(found, list) else None


class _PlanReader(pickle.Unpickler):
    """Makes objects of plans alone: the file lies where others may write."""

    def find_class(self, module: str, name: str) -> Any:
        is_plan = module.startswith("millstream.streams.plan.") and "." not in name
        if not is_plan and module != "datetime" and (module, name) not in _PLAIN_CLASSES:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a plan")
        found = super().find_class(module, name)
        if not isinstance(found, type):
            raise pickle.UnpicklingError(f"{module}.{name} is no class")
        return found


class _Finishes(msgspec.Struct, frozen=True):
    """How often it was tried to finish a micro-batch."""

    batch_id: int
    count: int

    @classmethod
    def read(cls, directory: Path, batch_id: int) -> _Finishes:
        """Those of that micro-batch."""
        try:
            found = msgspec.json.decode((directory / _TRIES_FILE).read_bytes(), type=cls)
        except FileNotFoundError:
            return cls(batch_id, 0)
        return found if found.batch_id == batch_id else cls(batch_id, 0)


def finish_cut_batch(
    directory: Path, start: Callable[[SharedPlans], Pipeline], following: SharedPlans | None = None
) -> None:
    """Have the micro-batch delivered that the query with its checkpoint in `directory` was cut short in, if it was.

    `start` runs the query for jobs that shared it. Where `following` are the same ones, the start that follows does it.
    The query must not run. Where it cannot be finished the log says so: its rows may be written twice then, and none
    is taken for another one.
    """
    query = Checkpoint.find(directory)
    batch_id = None if query is None else query.find_cut_batch()
    if query is None or batch_id is None:
        return
    plans, tried = read_plans(directory), _Finishes.read(directory, batch_id)
    if plans is not None and following is not None and plans == list(following):
        return
    if plans is not None and tried.count < MAX_FINISHES:
        count = msgspec.json.encode(_Finishes(batch_id, tried.count + 1))
        write_file(directory / _TRIES_FILE, count, durable=False)
        _log.info("The micro-batch %d of %s was cut short; %d jobs finish it.", batch_id, directory, len(plans))
        _finish(directory, batch_id, lambda: start(plans))
        if query.find_cut_batch() is None:
            return
    _log.warning("The micro-batch %d of %s cannot be finished: its rows may come twice.", batch_id, directory)
    query.rename()


def _finish(directory: Path, batch_id: int, start: Callable[[], Pipeline]) -> None:
    try:
        pipeline = start()
    except MillstreamError as error:
        _log.warning("The jobs that shared %s do not start: %s", directory, error)
        return
    end_s = time.monotonic() + FINISH_LIMIT_S
    try:
        while DeliveryNote.read(directory).over < batch_id and time.monotonic() < end_s:
            if pipeline.wait(_LOOK_S):
                break
    finally:
        pipeline.stop()
