"""Mirrors a job's checkpoint to another place before sinks write, and restores it when the directory is lost.

A micro-batch can be repeated by whoever has the state before it, its offsets in Spark's log, and the sinks' notes of
where they stood. All of that is there between the moment when the sinks have begun and the one when tasks run. There
the copy is made, and there the micro-batch waits for it. So whatever a sink has of a micro-batch, the copy knows it,
and the repeat sends only the rest.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import re
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from millstream.streams.errors import JobError
from millstream.streams.jobs.checkpoint import Checkpoint
from millstream.streams.jobs.identity import (
    IDENTITY_FILE,
    OWNER_FILE,
    CopyOwner,
    JobIdentity,
    read_identity,
    read_owner,
)
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.topic_files import TopicFiles
from millstream.streams.spark.operators.arrow_files import ArrowStateFiles
from millstream.streams.spark.source.topic_log import open_log
from millstream.streams.state.atomic_file import write_file
from millstream.streams.state.mirrored_directory import MirroredDirectory, Moment
from millstream.streams.state.state_files import StateFiles
from millstream.streams.state.unreachable import StateDenied, StateUnreachable

__all__ = ["CheckpointMirror", "StatePlace", "refusal_of"]

_log = logging.getLogger(__name__)

MAX_BEHIND_S: Final = 30.0
"""Seconds that a copy may be behind until the job's progress tells it."""

_TIMEOUT_S: Final = 10.0
_NAME_CHARACTERS: Final = 90
_OPERATORS: Final = "operators"
_LOG: Final = re.compile(r"spark(?:-\d+)?/(?:offsets|commits)/(\d+)")
_KEPT_BATCHES: Final = 3
"""Micro-batches of Spark's logs that are copied: the last one that was planned, and those before that Spark reads."""

_SCRATCH: Final = frozenset({"malformed", "decoded", "late", "calls", "one-row", OWNER_FILE})
"""What a start of a job makes again."""

_STATE_ELSEWHERE: Final = (
    "Remove this directory to go on from there; or remove the copy, or give the job another name, to begin anew."
)


class StatePlace:
    """Where the state of a query of `job` lies beside its `directory`, as the settings say."""

    def __init__(self, settings: JobSettings, job: str, directory: Path) -> None:
        self._directory = directory
        self._files: ArrowStateFiles | None = None
        self._topic: TopicFiles | None = None
        if settings.state_place and settings.state_mirror:
            words = "'state.mirror' and 'execution.checkpointing.dir' both say where the checkpoint is copied."
            raise JobError("STATE_DENIED", words, remedy="Set one of them.")
        if settings.state_place:
            self._files = ArrowStateFiles.at(settings.state_place).within(job, directory.name)
        elif settings.state_mirror:
            topic = settings.state_mirror_topic or _topic_of(job)
            self._topic = TopicFiles(
                topic, f"{job}/{directory.name}", lambda: open_log(settings.nameserver, timeout_s=_TIMEOUT_S)
            )
        # Workers write and remove state in a place of its own as they go: a copy that is behind it fits nothing.
        self._waits = settings.state_mirror_waits or bool(settings.state_place)

    def operators(self, name: str) -> StateFiles:
        """The state files of an operator. Only where `has_operators`."""
        assert self._files is not None
        return self._files.within(_OPERATORS, name)

    @property
    def location(self) -> str:
        """The place, for messages; blank where there is none but the directory."""
        place = self._files or self._topic
        return place.location if place is not None else ""

    @property
    def has_operators(self) -> bool:
        """Whether operators keep their state there."""
        return self._files is not None

    @property
    def _operators_location(self) -> str:
        return self.location if self.has_operators else ""

    def check_operators(self) -> None:
        """Raise JobError CHECKPOINT_MISMATCH where the job's operators keep their state in another place than this."""
        identity, owner = read_identity(self._directory), read_owner(self._directory)
        before = owner.operators if owner is not None else ""
        is_here = not before and (self._directory / _OPERATORS).exists()
        if identity is None or before == self._operators_location or not (before or is_here):
            return
        if identity.state is not None and not identity.state.operators:
            return
        words = f"The operators of the job keep their state in {before or self._directory / _OPERATORS}."
        remedy = "'execution.checkpointing.dir' stays as it was when the job began; or give the job another name."
        raise JobError("CHECKPOINT_MISMATCH", words, remedy=remedy)

    def copied_origin(self) -> str:
        """The savepoint that the query began with of which a copy lies there; blank where there is no copy.

        Its directory need not be there. Raises as `mirror`, and JobError CHECKPOINT_DAMAGED.
        """
        place = self._copies()
        if place is None:
            return ""
        copy = MirroredDirectory(self._directory, place, lambda _name: True)
        try:
            head = copy.head()
            identity = (
                None if head is None else msgspec.json.decode(copy.content(head, IDENTITY_FILE), type=JobIdentity)
            )
        except StateUnreachable as error:
            raise refusal_of(error) from error
        finally:
            self._close()
        return "" if identity is None else identity.origin

    def mirror(self) -> CheckpointMirror | None:
        """The copy of the checkpoint; None where the directory is all there is.

        Raises JobError STATE_UNREACHABLE, STATE_DENIED where the place cannot be written, read and listed.
        """
        place = self._copies()
        if place is None:
            return None
        return CheckpointMirror(
            self._directory, place, waits=self._waits, operators=self._operators_location, close=self._close
        )

    def _copies(self) -> StateFiles | None:
        """Where the copy lies, seen to be fit for it."""
        try:
            if self._files is not None:
                self._files.probe()
                return self._files.within("checkpoint")
            if self._topic is not None:
                self._topic.prepare()
        except StateUnreachable as error:
            raise refusal_of(error) from error
        return self._topic

    def _close(self) -> None:
        if self._topic is not None:
            self._topic.close()


class CheckpointMirror:
    """The copy of `directory` in `place`. With `waits` no sink is ahead of it; `close` ends the connection there."""

    def __init__(
        self,
        directory: Path,
        place: StateFiles,
        *,
        waits: bool,
        operators: str = "",
        close: Callable[[], None] = lambda: None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._place = place
        self._waits = waits
        self._operators = operators
        self._close = close
        self._monotonic_s = monotonic_s
        self._copy = MirroredDirectory(directory, place, self._matters)
        self._owner = ""
        self._waiting_since_s: float | None = None
        self._newest_batch = 0
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._thread: threading.Thread | None = None

    def begin(self) -> str:
        """Bring the checkpoint back where the directory has none; what the user is to know of that, else blank.

        Raises JobError CHECKPOINT_MISMATCH where the job went on elsewhere, CHECKPOINT_DAMAGED, STATE_UNREACHABLE,
        STATE_DENIED.
        """
        try:
            return self._begin()
        except StateUnreachable as error:
            raise refusal_of(error) from error

    def _begin(self) -> str:
        head = self._copy.head()
        own = read_owner(self._directory)
        if (self._directory / IDENTITY_FILE).exists():
            if head is not None and (own is None or head.owner not in (own.owner, own.follows)):
                words = (
                    f"The job of the checkpoint {self._directory} went on elsewhere: its copy in {self._place.location}"
                    " is another start's."
                )
                raise JobError("CHECKPOINT_MISMATCH", words, remedy=_STATE_ELSEWHERE)
            self._owner = own.owner if own is not None else self._own(head.owner if head is not None else "")
            if not self._waits:
                # A copy of a start that waited must not speak for one that does not.
                self._send(self._look())
            return ""
        if head is None:
            self._owner = self._own("")
            return ""
        self._copy.bring_back(head, but=IDENTITY_FILE)
        self._owner = self._own(head.owner)
        is_exact = bool(head.note.get("waits"))
        # Last: with it the directory counts as a checkpoint. Where the copy may have been behind, sinks may have
        # micro-batches of the old name that it knows nothing of.
        Checkpoint.put_identity(self._directory, self._copy.content(head, IDENTITY_FILE), renamed=not is_exact)
        words = f"The job goes on from its copy in {self._place.location}, in micro-batch {head.note.get('batch', 0)}."
        return words if is_exact else f"{words} The copy may have been behind the sinks: they may get rows again."

    def before_writing(self) -> None:
        """Copy what a repeat of the micro-batch needs that is planned: its sinks have begun, its tasks have not.

        Raises JobError STATE_UNREACHABLE, STATE_DENIED.
        """
        if self._waiting_since_s is None:
            self._waiting_since_s = self._monotonic_s()
        if self._waits:
            self._is_idle.wait()
            try:
                self._send(self._look())
            except StateUnreachable as error:
                raise refusal_of(error) from error
        elif self._is_idle.is_set():
            moment = self._look()
            self._do(lambda: self._send(moment))

    def after_writing(self) -> None:
        """Send ahead, beside what Spark does next, what the micro-batch that was delivered left."""
        if self._waits:
            self._do(self._send_ahead)

    def end(self) -> None:
        """Copy what there is when the query has ended, and end the connection. Failures are in the log."""
        self._is_idle.wait()
        try:
            if self._owner and (self._directory / IDENTITY_FILE).exists():
                self._send(self._look())
                self._copy.sweep()
        except (OSError, JobError) as error:
            _log.warning("The copy of the checkpoint is not the newest: %s", error)
        finally:
            self.close()

    def close(self) -> None:
        """End the connection and the thread; nothing is copied any more."""
        self._jobs.put(None)
        self._close()

    def trouble(self) -> str | None:
        """What is to be told of a copy that is far behind; None if it is not."""
        since_s = self._waiting_since_s
        behind_s = 0.0 if since_s is None else self._monotonic_s() - since_s
        if behind_s <= MAX_BEHIND_S:
            return None
        return f"The copy of the checkpoint in {self._place.location} is {behind_s:.0f} s behind."

    def _look(self) -> Moment:
        # A query that changed has a log of its own, which counts on.
        offsets = self._directory.glob("spark*/offsets/*")
        self._newest_batch = max((int(file.name) for file in offsets if file.name.isdigit()), default=0)
        return self._copy.look()

    def _send(self, moment: Moment) -> None:
        if self._copy.send(moment):
            note: dict[str, int | bool] = {"batch": self._newest_batch, "waits": self._waits}
            self._copy.name(moment, self._owner, note)
            self._waiting_since_s = None
            if not self._waits:
                self._copy.sweep()
        elif self._waits:
            raise StateUnreachable(self._place.location, "", "Files changed while they were copied.", "")

    def _send_ahead(self) -> None:
        self._copy.sweep()
        self._copy.send(self._look())

    def _do(self, work: Callable[[], None]) -> None:
        """Do it in the thread beside."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="millstream-mirror", daemon=True)
            self._thread.start()
        self._is_idle.clear()
        self._jobs.put(work)

    def _work(self) -> None:
        while (work := self._jobs.get()) is not None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - the edge of the thread; the next micro-batch sends it all
                _log.warning("The checkpoint was not copied: %s", error)
            finally:
                self._is_idle.set()

    def _own(self, follows: str) -> str:
        owner = uuid.uuid4().hex
        write_file(self._directory / OWNER_FILE, msgspec.json.encode(CopyOwner(owner, follows, self._operators)))
        return owner

    def _matters(self, name: str) -> bool:
        if name.partition("/")[0] in _SCRATCH:
            return False
        entry = _LOG.fullmatch(name)
        return entry is None or int(entry[1]) > self._newest_batch - _KEPT_BATCHES


def _topic_of(job: str) -> str:
    """The topic for a job's copy; what a topic's name cannot have gives way to a digest."""
    legal = re.sub(r"[^A-Za-z0-9_-]", "-", job)[:_NAME_CHARACTERS]
    digest = "" if legal == job else f"-{hashlib.blake2b(job.encode(), digest_size=4).hexdigest()}"
    return f"millstream-state-{legal}{digest}"


def refusal_of(error: StateUnreachable) -> JobError:
    """STATE_DENIED or STATE_UNREACHABLE, for the user."""
    words = f"{error.name or 'The listing'} of the state in {error.place}: {error.cause}"
    # A place that is only away may come; one that refuses does not.
    name = "STATE_DENIED" if isinstance(error, StateDenied) else "STATE_UNREACHABLE"
    return JobError(name, words, remedy=error.remedy)
