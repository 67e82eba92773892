"""Spark's own cluster from the installed PySpark: a master, or a worker, as a process with the Java that we find."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark

from millstream.streams.errors import JobError
from millstream.streams.spark.runtime.java import find_java, make_launcher

__all__ = ["SECRET_VARIABLE", "SparkDaemon", "SparkMaster", "SparkWorker", "authentication", "secret_settings"]

SECRET_VARIABLE: Final = "MILLSTREAM_SPARK_SECRET"
"""The environment variable with the secret that master, workers and jobs share; it stands in no argument and no log."""

_SPARKS_VARIABLE: Final = "_SPARK_AUTH_SECRET"
"""`SecurityManager.ENV_AUTH_SECRET`; a worker hands it on to its executors."""

DAEMON_MEMORY_MB: Final = 256
"""Heap of a master and of a worker itself; what executors take comes on top."""

START_TIMEOUT_S: Final = 60.0
"""How long a master may take to listen, and a worker to register."""

STOP_TIMEOUT_S: Final = 15.0
"""How long a process may take to stop its executors; then it is killed."""

MAX_LINE_BYTES: Final = 64 * 1024
"""The longest line of Spark's log that is read."""

_KEPT_LINES: Final = 5
_ERROR: Final = re.compile(r"Exception|ERROR|refused|Failed to")
_MASTER: Final = re.compile(r"spark://[^\s/:]+:\d{1,5}(,[^\s/:]+:\d{1,5})*")
_MASTER_READY: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER_READY: Final = re.compile(r"Successfully registered with master (spark://\S+)")


@dataclass(frozen=True, slots=True)
class SparkMaster:
    """A master that listens on `host` and `port` (0: a free one)."""

    host: str
    port: int

    ready = _MASTER_READY
    main_class = "org.apache.spark.deploy.master.Master"

    def arguments(self) -> list[str]:
        """What its main class is given."""
        return ["--host", self.host, "--port", str(self.port), "--webui-port", "0"]


@dataclass(frozen=True, slots=True)
class SparkWorker:
    """A worker of the master at `master`; executors work in `directory` and take `cores` and `memory_mb` at most."""

    master: str
    host: str
    cores: int
    memory_mb: int
    directory: Path

    ready = _WORKER_READY
    main_class = "org.apache.spark.deploy.worker.Worker"

    def arguments(self) -> list[str]:
        """What its main class is given."""
        return [
            *("--host", self.host, "--port", "0", "--webui-port", "0"),
            *(
                "--cores",
                str(self.cores),
                "--memory",
                f"{self.memory_mb}m",
                "--work-dir",
                str(self.directory.resolve()),
            ),
            self.master,
        ]


class SparkDaemon:
    """A master or a worker as a process of this one. Spark's log goes to `log`, which starts over."""

    def __init__(self, role: SparkMaster | SparkWorker, log: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._role = role
        self._log = log
        self._environment = environment
        self._java: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._address: asyncio.Future[str] | None = None
        self._last: list[str] = []

    async def start(self) -> str:
        """The master's address once it listens, or once the worker has registered with it.

        Raises JobError JAVA_MISSING, and SPARK_START_FAILED where the process ends or takes more than 60 s.
        """
        _refuse_open_master(self._role.host, self._environment)
        if isinstance(self._role, SparkWorker) and not _MASTER.fullmatch(self._role.master):
            words = f"{self._role.master!r} is no address of a Spark master."
            raise JobError("SPARK_START_FAILED", words, remedy="Write spark://HOST:PORT, as spark-master prints it.")
        self._java = make_launcher(find_java(self._environment), own_session=False)
        self._log.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(self._role, SparkWorker):
            self._role.directory.mkdir(parents=True, exist_ok=True)
        self._address = asyncio.get_running_loop().create_future()
        self._process = await asyncio.create_subprocess_exec(
            str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
            self._role.main_class,
            *self._role.arguments(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._spark_environment(self._java),
            limit=MAX_LINE_BYTES,
        )
        self._reading = asyncio.create_task(self._read_log(self._process))
        try:
            return await asyncio.wait_for(asyncio.shield(self._address), START_TIMEOUT_S)
        except TimeoutError:
            await self.close()
            raise self._failure(f"was not ready within {START_TIMEOUT_S:.0f} s") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop the process and its executors. Stopping twice is no error."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT_S)
            except TimeoutError:
                self._process.kill()
        if self._reading is not None:
            await self._reading
        if self._java is not None:
            shutil.rmtree(self._java, ignore_errors=True)

    async def wait(self) -> None:
        """Return never, as long as the process runs. Raises JobError SPARK_START_FAILED when it has ended."""
        assert self._process is not None
        code = await self._process.wait()
        raise self._failure(f"ended with code {code}")

    def reload_certificate(self) -> None:
        """There is none."""

    def _spark_environment(self, java: Path) -> dict[str, str]:
        options = " ".join(f"-D{name}={value}" for name, value in authentication(self._environment).items())
        return {
            **{name: value for name, value in self._environment.items() if name != SECRET_VARIABLE},
            "JAVA_HOME": str(java),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": self._role.host,
            "SPARK_DAEMON_MEMORY": f"{DAEMON_MEMORY_MB}m",
            "SPARK_DAEMON_JAVA_OPTS": options,
            **_secret_environment(self._environment),
            "SPARK_NO_DAEMONIZE": "1",
        }

    async def _read_log(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert self._address is not None
        with self._log.open("wb") as log:
            while True:
                try:
                    line = await process.stdout.readline()
                except ValueError:
                    # A longer line than the limit; what follows is read on.
                    continue
                if not line:
                    break
                log.write(line)
                log.flush()
                text = line.decode(errors="replace").rstrip()
                if _ERROR.search(text):
                    self._last = [*self._last, text][-_KEPT_LINES:]
                found = self._role.ready.search(text)
                if found and not self._address.done():
                    self._address.set_result(found[1])
        if not self._address.done():
            self._address.set_exception(self._failure("ended before it was ready"))

    def _failure(self, what: str) -> JobError:
        kind = "master" if isinstance(self._role, SparkMaster) else "worker"
        words = f"The Spark {kind} {what}{f': {self._last[0]}' if self._last else ''}."
        return JobError("SPARK_START_FAILED", words, remedy=f"Its log is {self._log}.")


def authentication(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Spark's settings with which master, workers and jobs know each other; none without a secret."""
    secret = environment.get(SECRET_VARIABLE, "")
    if not secret:
        return {}
    if not re.fullmatch(r"[\w.+/=-]{16,200}", secret):
        words = f"The secret in {SECRET_VARIABLE} is not one of 16 to 200 letters, digits and . _ + / = -."
        raise JobError("SPARK_START_FAILED", words, remedy="Make one with: openssl rand -hex 32")
    return {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


def _secret_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The secret where Spark's processes look for it, which is no argument that others see."""
    secret = environment.get(SECRET_VARIABLE, "")
    return {_SPARKS_VARIABLE: secret} if secret else {}


@contextlib.contextmanager
def secret_settings() -> Iterator[None]:
    """While this lasts, a driver that starts finds the secret among Spark's defaults: it looks for it nowhere else.

    Spark's own defaults, those of SPARK_CONF_DIR, hold too. Without a secret nothing changes.
    """
    secret, before = os.environ.get(SECRET_VARIABLE, ""), os.environ.get("SPARK_CONF_DIR")
    if not secret:
        yield
        return
    directory = Path(tempfile.mkdtemp(prefix="millstream-spark-conf-"))
    try:
        if before is not None:
            shutil.copytree(before, directory, dirs_exist_ok=True)
        defaults = directory / "spark-defaults.conf"
        known = defaults.read_text() if defaults.exists() else ""
        defaults.touch(mode=0o600)
        defaults.write_text(f"{known}\nspark.authenticate.secret {secret}\n")
        os.environ["SPARK_CONF_DIR"] = str(directory)
        yield
    finally:
        if before is None:
            os.environ.pop("SPARK_CONF_DIR", None)
        else:
            os.environ["SPARK_CONF_DIR"] = before
        shutil.rmtree(directory, ignore_errors=True)


def _refuse_open_master(host: str, environment: Mapping[str, str]) -> None:
    """Refuse to listen for others without a secret: who reaches such a cluster runs programs on it."""
    if host == "localhost" or authentication(environment):
        return
    try:
        is_own = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_own = False
    if not is_own:
        words = f"Whoever reaches a Spark cluster on {host} may run programs there, for it has no secret."
        raise JobError("SPARK_START_FAILED", words, remedy=f"Set {SECRET_VARIABLE} on all machines, also for jobs.")
