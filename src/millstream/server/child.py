"""A server as a child process, for tests, examples and benchmarks of this project and of its users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from millstream.model.errors import StartRefused

__all__ = ["RoleProcess", "ServerAddresses", "ServerProcess"]

_READY_TIMEOUT_S = 30.0
_ROLE_READY_TIMEOUT_S = 120.0
"""A cluster starts several processes, one after the other."""
_STOP_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class ServerAddresses:
    """`host:port` of each role; `metrics` None where it is off. `protocols` are those for MQTT, AMQP and HTTP."""

    nameserver: str
    broker: str
    grpc: str
    metrics: str | None
    protocols: Mapping[str, str] = field(default_factory=dict)


class _Child:
    """A process of ours that prints its addresses as JSON, then that it is ready."""

    def __init__(
        self,
        words: Sequence[str],
        log: Path | None,
        environment: Mapping[str, str] | None,
        ready_timeout_s: float = _READY_TIMEOUT_S,
        through: Sequence[str] = (),
    ) -> None:
        variables = None if environment is None else {**os.environ, **environment}
        command = [*through, sys.executable, "-m", "millstream", *words, "-o", "json"]
        with nullcontext(subprocess.PIPE) if log is None else log.open("ab") as errors:
            log_start = 0 if isinstance(errors, int) else errors.tell()
            # Ctrl-C on the terminal reaches the owner alone, who stops the server when it needs it no more.
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=variables, process_group=0
            )
        assert self._process.stdout is not None
        watchdog = threading.Timer(ready_timeout_s, self._process.kill)
        watchdog.start()
        try:
            first, self.ready_line = self._process.stdout.readline(), self._process.stdout.readline().strip()
        finally:
            watchdog.cancel()
        if not self.ready_line.startswith("ready"):
            error_text = self._process.communicate()[1] or ""
            if log is not None:
                error_text = log.read_bytes()[log_start:].decode(errors="replace")
            error_text = error_text.strip().removeprefix("error: ")
            raise StartRefused(
                "BAD_CONFIGURATION", f"The server did not become ready: {error_text or 'it said nothing.'}"
            )
        self._announced: dict[str, str] = json.loads(first)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def kill(self) -> None:
        """End it as kill -9 does."""
        self._process.kill()
        self._end()

    def stop(self, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """End it cleanly, or as kill -9 does after that time; does nothing if it has ended."""
        self._process.terminate()
        self._end(timeout_s)

    def _end(self, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        try:
            self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        except ValueError:
            self._process.wait()


class ServerProcess(_Child):
    """`millstream quickstart` on free ports over `directory`, ready when the constructor returns.

    Use it as a context manager; leaving it stops the server cleanly. `options` are further command-line options,
    `log` is a file for what the server says about itself, `environment` are variables beside the caller's own.
    `through` are words before the command, such as those that set limits; they must become the process, not start it.
    Raises StartRefused with the server's words if it does not become ready in 30 s, or `ready_timeout_s`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        options: Sequence[str] = (),
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
        through: Sequence[str] = (),
        ready_timeout_s: float = _READY_TIMEOUT_S,
    ) -> None:
        ports = ("--grpc-port", "0", "--remoting-port", "0", "--nameserver-port", "0", "--metrics-port", "0")
        words = ["quickstart", "--dir", str(directory), *ports, *options]
        super().__init__(words, log, environment, ready_timeout_s, through)
        announced = self._announced
        names = ("mqtt", "amqp", "http")
        further = {name: announced[name] for name in names if name in announced}
        self.addresses = ServerAddresses(
            announced["nameserver"], announced["broker"], announced["grpc"], announced["metrics"], further
        )


class RoleProcess(_Child):
    """`millstream start ROLE` (nameserver, broker, proxy or cluster), as `ServerProcess`.

    `addresses` is `host:port` of each port by its name. The ports are those of `options`: `--port 0` takes a free one.
    `through` are words before the command, such as those that run it in another network namespace; they must become
    the process, not start it.
    """

    def __init__(
        self,
        role: str,
        directory: Path,
        *,
        options: Sequence[str] = (),
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
        through: Sequence[str] = (),
    ) -> None:
        words = ["start", role, "--dir", str(directory), *options]
        super().__init__(words, log, environment, _ROLE_READY_TIMEOUT_S, through)
        self.addresses = {name: text for name, text in self._announced.items() if name != "directory"}
