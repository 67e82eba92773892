"""RocketMQ's own admin tool, its commands run one after another in one Java process (mqadmin/Admin.java)."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from interop.driver import HERE, install, require

__all__ = ["AdminTool", "rows"]

COMMAND_TIMEOUT_S = 60.0
"""How long one command may take; the first one compiles the program."""


class AdminTool:
    """Commands of mqadmin against one nameserver. `keys` (access key, secret) sign what it asks, `tls` encrypts it,
    without a look at certificates. Raises Missing.
    """

    def __init__(self, nameserver: str, home: Path, *, keys: tuple[str, str] | None = None, tls: bool = False) -> None:
        folder = HERE / "mqadmin"
        require("java", "mvn")
        libraries = folder / "target" / "lib"
        if not libraries.exists():
            install(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=target/lib"], folder)
        (home / "conf").mkdir(parents=True)
        if keys is not None:
            (home / "conf" / "tools.yml").write_text(f"accessKey: {keys[0]}\nsecretKey: {keys[1]}\n")
        self.nameserver = nameserver
        options = [f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", "-XX:TieredStopAtLevel=1"]
        if tls:
            options.append("-Dtls.enable=true")
        command = ["java", *options, "-cp", f"{libraries}/*", str(folder / "Admin.java")]
        self._errors = (home / "errors").open("w+")
        self._process = subprocess.Popen(
            # Some commands write files where they are run.
            command,
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __call__(self, command: str, **options: object) -> str:
        """What a command prints; `options` are its own, by their letters or names."""
        words = [command, "-n", self.nameserver]
        for name, value in options.items():
            words += [f"-{name}"] if value is True else [f"-{name}", str(value)]
        return self._told(words)

    def refused(self, command: str, **options: object) -> str:
        """What a command prints that is to fail."""
        printed = self(command, **options)
        assert "Exception: CODE: " in printed, printed
        return printed

    def done(self, command: str, **options: object) -> str:
        """What a command prints that is to go well."""
        printed = self(command, **options)
        assert "Exception" not in printed, printed
        return printed

    def consume(self, group: str, topic: str) -> None:
        """Start a push consumer that stays."""
        self._told(["consume", self.nameserver, group, topic])

    def produce(self, group: str, topic: str, *bodies: str) -> list[dict[str, Any]]:
        """Send messages by a producer that stays and traces them; what it was told. Keys are `key-` and the body."""
        printed = self._told(["produce", self.nameserver, group, topic, *bodies])
        sent = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        assert len(sent) == len(bodies), printed
        return sent

    def _told(self, words: list[str]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(COMMAND_TIMEOUT_S, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        assert line, f"{' '.join(words)} ended the tool: {Path(self._errors.name).read_text()[-2000:]}"
        printed: str = json.loads(line)
        return printed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


def rows(printed: str) -> list[list[str]]:
    """The words of each line of a table, without its head."""
    lines = (line.split() for line in printed.splitlines())
    return [words for words in lines if words and not words[0].startswith("#")]
