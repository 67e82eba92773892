"""S7, the failing disk: full, read-only, and errors at every single write, sync, rename and reservation.

Writes are refused with the right name, reads go on, a full disk passes, a failed sync is final, and a restart recovers.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from crash.disk_model import random_choice
from crash.ledger import Ledger, Sent, content_of
from crash.programme import ANY_ERROR, ProgrammeRun, Size
from crash.traced_files import HASTY, TracedFiles, crash_state, lay_out
from millstream.model.clock import ManualClock
from millstream.model.errors import MillstreamError
from millstream.store.message_store import MessageStore, StoreOptions

__all__ = ["FaultyFiles", "break_the_disk"]

ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)
OPTIONS = StoreOptions(segment_bytes=2048, consume_queue_entries=5, sync_flush=True)

SMALL_DISK_BYTES = 4 * 1024 * 1024
"""The tmpfs of the full disk."""

_KEYS = {("orders", 0), ("orders", 1), ("bills", 0)}
_CALLS = 14
_CHILD_TIMEOUT_S = 60


class FaultyFiles(TracedFiles):
    """Raises `error` at the call number `fail_at` of those that change or sync, and at all that follow if it lasts."""

    def __init__(self, root: Path, fail_at: int, error: int, *, is_lasting: bool) -> None:
        super().__init__(root)
        self.calls = 0
        self.failed_sync_of_log = False
        self.has_failed = False
        self.fail_at: int | None = fail_at
        self._error = error
        self._is_lasting = is_lasting
        self._paths: dict[int, Path] = {}

    def heal(self) -> None:
        """Fail no more."""
        self.fail_at = None

    def _check(self, path: Path | None, *, is_sync: bool = False) -> None:
        self.calls += 1
        if self.fail_at is None or self.calls < self.fail_at or (self.calls > self.fail_at and not self._is_lasting):
            return
        self.has_failed = True
        if is_sync and path is not None and path.parent.name == "commitlog":
            self.failed_sync_of_log = True
        raise OSError(self._error, os.strerror(self._error))

    def open(self, path: Path, *, create: bool = False) -> int:
        if create and not path.exists():
            self._check(path)
        descriptor = super().open(path, create=create)
        self._paths[descriptor] = path
        return descriptor

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
        self._check(self._paths[descriptor])
        super().pwrite(descriptor, data, position)

    def truncate(self, descriptor: int, length: int) -> None:
        self._check(self._paths[descriptor])
        super().truncate(descriptor, length)

    def preallocate(self, descriptor: int, position: int, length: int) -> None:
        self._check(self._paths[descriptor])
        super().preallocate(descriptor, position, length)

    def fdatasync(self, descriptor: int) -> None:
        self._check(self._paths[descriptor], is_sync=True)
        super().fdatasync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        self._check(target)
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self._check(path / "entries")
        super().sync_directory(path)


class _Life:
    """One store on a disk that fails, with what it acknowledged."""

    def __init__(self, run: ProgrammeRun, directory: Path, files: FaultyFiles, choose: random.Random) -> None:
        self.ledger = Ledger()
        self.flushed = 0
        self.errors: list[MillstreamError] = []
        self.wrong: str | None = None
        self._run, self._directory, self._files, self._choose = run, directory, files, choose
        self._number = 0

    def live(self) -> None:
        """Open, and send and flush again and again, whatever the disk says; afterwards it is healed."""
        try:
            store = MessageStore.open(self._directory, OPTIONS, clock=ManualClock(step_ms=1), files=self._files)
        except MillstreamError as error:
            self.errors.append(error)
            return
        try:
            for call in range(_CALLS):
                self._send(store)
                if call % 5 == 4:
                    self._attempt(store.write_checkpoint)
                if self._files.has_failed:
                    self._read(store)
            self._files.heal()
            self._after_the_fault(store)
        finally:
            self._attempt(store.close)

    def _send(self, store: MessageStore) -> bool:
        self._number += 1
        sent = Sent(*self._choose.choice(sorted(_KEYS)), b"%d " % self._number + b"x" * self._choose.randrange(300))
        before = store.written_log_offset

        def put() -> None:
            store.put([sent.pending()])

        if not self._attempt(put):
            if store.written_log_offset != before:
                self.wrong = "a refused message moved the log's end"
            return False
        self.ledger.sent.append(sent)
        if not self._attempt(store.flush_log):
            return False
        if self._files.failed_sync_of_log:
            self.wrong = "a message was acknowledged after a failed sync of the log"
        self.flushed = len(self.ledger.sent)
        return True

    def _attempt(self, call: Callable[[], object]) -> bool:
        try:
            call()
        except MillstreamError as error:
            self.errors.append(error)
            return False
        return True

    def _read(self, store: MessageStore) -> None:
        wrong = self.ledger.broken_by(content_of(store, _KEYS), 0, self.flushed)
        if wrong is not None:
            self.wrong = f"reading beside the fault: {wrong}"

    def _after_the_fault(self, store: MessageStore) -> None:
        is_final = any(error.name == "STORE_FAILED" for error in self.errors)
        is_taken = self._send(store)
        if self._files.failed_sync_of_log and not is_final:
            self.wrong = "a failed sync of the log was not final"
        if is_final and is_taken:
            self.wrong = "a store that had failed took a message again"
        if not is_final and not is_taken:
            self.wrong = f"nothing is taken after the fault has passed: {self.errors[-1]}"
        self._run.count("final" if is_final else "passing")


def break_the_disk(run: ProgrammeRun) -> None:
    """S7. Each error at each call that changes something, once and lasting; then a true full and a read-only disk."""
    counting = _fail_at(run, 10**9, errno.EIO, is_lasting=False)
    stride = 30 if run.size is Size.SMOKE else run.by_size(3, 1, 1)
    for error in ERRORS:
        for is_lasting in (False, True):
            for fail_at in range(1 + run.random.randrange(stride), counting + 1, stride):
                _fail_at(run, fail_at, error, is_lasting=is_lasting)
    _fill_a_small_disk(run)


def _fail_at(run: ProgrammeRun, fail_at: int, error: int, *, is_lasting: bool) -> int:
    """One run with a fault, and a start over a legal state of the disk after it; the number of calls it made."""
    directory = run.scratch / "failing"
    lay_out({}, directory)
    files = FaultyFiles(directory, fail_at, error, is_lasting=is_lasting)
    choose = random.Random(run.seed)
    life = _Life(run, directory, files, choose)
    label = f"{errno.errorcode[error]} at call {fail_at}{' and on' if is_lasting else ''}"
    run.count("faults")
    try:
        life.live()
    except ANY_ERROR as raised:
        life.wrong = f"{type(raised).__name__}: {raised}"
    allowed = {"STORE_FAILED", "DATA_DIRECTORY_NOT_WRITABLE"} | ({"DISK_FULL"} if error == errno.ENOSPC else set())
    unfit = {said.name for said in life.errors} - allowed
    if unfit:
        run.fail(f"{label}: refused with {sorted(unfit)}", directory)
    if life.wrong is not None:
        run.fail(f"{label}: {life.wrong}", directory)
    _restart(run, files, life, directory, label)
    return files.calls


def _restart(run: ProgrammeRun, files: FaultyFiles, life: _Life, directory: Path, label: str) -> None:
    """Power fails as well: what a failed sync left may be gone, what was acknowledged may not."""
    state = crash_state(files, random_choice(random.Random(run.random.random()), share=0.0))
    lay_out(state, directory)
    try:
        store = MessageStore.open(directory, OPTIONS, clock=ManualClock(step_ms=1), files=HASTY)
        try:
            wrong = life.ledger.broken_by(content_of(store, _KEYS), 0, life.flushed)
            store.put([Sent("orders", 0, b"after").pending()])
        finally:
            store.close()
    except ANY_ERROR as error:
        wrong = f"{type(error).__name__}: {error}"
    if wrong is not None:
        lay_out(state, directory)
        run.fail(f"{label}, after a restart: {wrong}", directory)


def _fill_a_small_disk(run: ProgrammeRun) -> None:
    """The same on a real file system of 4 MB in a mount namespace, where the system lets us make one."""
    mount = run.scratch / "small"
    mount.mkdir()
    script = (
        f'mount -t tmpfs -o size={SMALL_DISK_BYTES} tmpfs "$1" && shift 1 && "$@" write && '
        f'mount -o remount,ro "{mount}" && "$@" read-only'
    )
    unshare = shutil.which("unshare")
    command = [unshare or "unshare", "-rm", "sh", "-c", script, "sh", str(mount)]
    if unshare is None or subprocess.run([unshare, "-rm", "true"], capture_output=True, check=False).returncode:
        run.count("small_disk_skipped")
        return
    child = [sys.executable, "-m", "crash.small_disk", str(mount)]
    said = subprocess.run([*command, *child], capture_output=True, text=True, timeout=_CHILD_TIMEOUT_S, check=False)
    run.count("small_disks")
    if said.returncode:
        run.fail(f"a disk of {SMALL_DISK_BYTES} bytes: {said.stdout.strip()[-300:]} {said.stderr.strip()[-300:]}")
