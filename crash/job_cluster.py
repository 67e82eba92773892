"""What jobs of a job server run in, as processes to kill: nameserver, broker, job server, Spark's cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from crash.cluster_load import free_port
from millstream.client.job_server import JobServerClient
from millstream.server.child import RoleProcess
from millstream.streams.spark.runtime.class_archive import archive_directory, find_archive
from millstream.streams.spark.runtime.java import find_java

__all__ = ["JobCluster", "make_class_archive"]

_DRIVER: Final = "millstream.job_server.driver"
_SUBMIT: Final = "org.apache.spark.deploy.SparkSubmit"
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_LOOK_S: Final = 0.25
_STOP_S: Final = 30.0
"""Seconds that a part of Spark's cluster gets to stop before it is killed."""

_ENVIRONMENT: Final = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
"""Java's first compiler alone: what is killed again and again never earns what the second takes, 40 % of a start."""

_MAKE_ARCHIVE: Final = "from millstream.streams.spark.runtime.session import start_session; start_session().stop()"
_ARCHIVE_LIMIT_S: Final = 180.0
"""Seconds in which Java writes its archive of classes behind the end of a session."""

_WORKER_CORES: Final = 2
_WORKER_MB: Final = 1536


class _Process(NamedTuple):
    """A row of the system's table of processes."""

    pid: int
    parent: int
    command: str

    @property
    def program(self) -> str:
        """The name of what runs: java, python3.11, sh."""
        return Path(self.command.split("\0")[0]).name


class JobCluster:
    """One of each, on 127.0.0.1, with all files in `directory`. All end with `running`.

    A process that is started again keeps its port and its directory.
    """

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self._directory = directory
        self._running = running
        self._ports = {name: str(free_port()) for name in ("nameserver", "broker", "jobs")}
        self._parts: dict[str, RoleProcess] = {}
        self.nameserver = self._start("nameserver").addresses["nameserver"]
        self._start("broker")
        self._start("jobs")
        running.callback(self._end_drivers)
        self.master = self._start_of_spark("spark-master", "--port", "0")
        cores = ("--cores", str(_WORKER_CORES), "--memory-mb", str(_WORKER_MB))
        self._start_of_spark("spark-worker", self.master, *cores)

    @property
    def checkpoints(self) -> Path:
        """Where the job server has the checkpoints of its jobs."""
        return self._directory / "checkpoints"

    @property
    def jobs(self) -> JobServerClient:
        """A client of the job server."""
        return JobServerClient(f"http://{self._parts['jobs'].addresses['http']}")

    def kill(self, name: str) -> None:
        """`kill -9` of the broker or the job server."""
        self._parts[name].kill()

    def start(self, name: str) -> None:
        """Start it again over what it left; it is ready when this returns."""
        self._start(name)

    def drivers(self) -> list[int]:
        """The drivers of the job server: Python processes with a session of Spark each."""
        return [one.pid for one in self._below() if _DRIVER in one.command and one.program.startswith("python")]

    def java_of_drivers(self) -> list[int]:
        """The Java processes of the drivers."""
        return [one.pid for one in self._below() if _SUBMIT in one.command and one.program == "java"]

    def executors(self) -> list[int]:
        """The executors that Spark's worker has started."""
        return [one.pid for one in self._below() if _EXECUTOR in one.command and one.program == "java"]

    def python_workers(self) -> list[int]:
        """The Python processes that work on rows, here or below executors, and those that they are forked from."""
        parents = {*self.java_of_drivers(), *self.executors()}
        found = []
        for one in self._below():
            if one.parent in parents and one.program.startswith("python"):
                found.append(one.pid)
                parents.add(one.pid)
        return found

    # inside

    def _start(self, name: str) -> RoleProcess:
        options = ["--port", self._ports[name]]
        if name != "nameserver":
            options += ["--nameservers", f"127.0.0.1:{self._ports['nameserver']}"]
        if name == "broker":
            options += ["--name", "broker"]
        if name == "jobs":
            options += ["--checkpoint-root", str(self.checkpoints)]
        log = self._directory / f"{name}.log"
        process = RoleProcess(name, self._directory / name, options=options, log=log, environment=_ENVIRONMENT)
        self._parts[name] = self._running.enter_context(process)
        return process

    def _start_of_spark(self, role: str, *words: str) -> str:
        """Start a part of Spark's cluster; the master's address."""
        command = [sys.executable, "-m", "millstream", "start", role, *words, "--dir", str(self._directory / role)]
        with (self._directory / f"{role}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **_ENVIRONMENT}
            )
        self._running.callback(_stop, process)
        assert process.stdout is not None
        words_of_it = process.stdout.readline().split()
        if not words_of_it:
            raise AssertionError(f"{role} did not start, see {self._directory / role}.log")
        return words_of_it[-1]

    def _below(self) -> list[_Process]:
        """The processes below this one, parents before their children."""
        rows = list(_processes())
        known, found = {os.getpid()}, []
        while more := [one for one in rows if one.parent in known and one.pid not in known]:
            found += more
            known |= {one.pid for one in more}
        return found

    def _end_drivers(self) -> None:
        """Drivers whose server was killed end by themselves, but later than the programme."""
        for pid in self.drivers():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def make_class_archive() -> None:
    """Let Java write the archive of Spark's classes, unless it is there.

    It does so at the end of a process that was asked to end. Drivers that are killed never make one, and without it
    each start takes twice the processor time.
    """
    archive = find_archive(find_java().path, archive_directory())
    if archive is None or archive.is_made():
        return
    subprocess.run([sys.executable, "-c", _MAKE_ARCHIVE], check=True, capture_output=True)
    limit_s = time.monotonic() + _ARCHIVE_LIMIT_S
    while not archive.is_made() and time.monotonic() < limit_s:
        time.sleep(_LOOK_S)


def _processes() -> Iterator[_Process]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            # A process may end while it is looked at.
            with contextlib.suppress(OSError):
                status = (entry / "stat").read_text().rpartition(")")[2].split()
                if status[0] != "Z":
                    yield _Process(int(entry.name), int(status[1]), (entry / "cmdline").read_bytes().decode("latin-1"))


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
