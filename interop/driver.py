"""The driver of one official client: a program in the client's language that obeys JSON lines (README.md)."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "CLIENTS",
    "JAVA_REMOTING",
    "REMOTING_CLIENTS",
    "ClientError",
    "Driver",
    "Missing",
    "command_of",
    "install",
    "require",
]

HERE = Path(__file__).parent
ANSWER_TIMEOUT_S = 60.0
"""How long one order may take."""

EVENT_TIMEOUT_S = 40.0
"""How long a test waits for deliveries."""

INSTALL_TIMEOUT_S = 600.0
"""How long npm and Maven may take."""

HEAP_MB = 256
"""Memory of a Java client's heap at most."""

CLIENTS = ("python", "node", "java-5.2.0", "java-5.0.8", "java-5.0.3", "go", "rust")
"""Those of gRPC, with the settings that they have where their user sets none: Java's and Go's begin with TLS."""

LACKS = {
    "java-5.0.8": ("recall", "priority", "lite"),
    "java-5.0.3": ("recall", "priority", "lite", "namespace"),
    "go": ("recall", "priority", "lite", "end of a start that is refused"),
    "rust": ("recall", "priority", "lite", "push", "change_invisible", "sql"),
}
"""What some of them cannot do; a scenario that needs it is skipped."""

_NEEDS = {"open_push": "push", "open_lite_push": "lite", "recall": "recall", "change_invisible": "change_invisible"}
"""Order -> what a client needs for it."""

JAVA_REMOTING = ("java-4.9", "java-5.3")
"""The remoting clients of RocketMQ itself: one driver, two versions."""

REMOTING_CLIENTS = (*JAVA_REMOTING, "ali-ons", "go-remoting")
"""Those of remoting."""

Json = dict[str, Any]


class ClientError(Exception):
    """What a client answered instead of a result; `code` is the service's status, or None."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(text)
        self.code = code


class Missing(Exception):
    """A client cannot run on this machine; the text says why."""


def command_of(client: str) -> list[str]:
    """The command of a client's driver, its packages installed; raises Missing."""
    if client in JAVA_REMOTING:
        return _java_program(HERE / "remoting" / client.removeprefix("java-"), HERE / "remoting" / "Driver.java")
    if client == "python":
        return [sys.executable, str(HERE / "python" / "driver.py")]
    if client.startswith("java-"):
        return _java_program(HERE / "java", HERE / "java" / "Driver.java", client.removeprefix("java-"))
    if client == "rust":
        return _rust_program(HERE / client)
    if client.startswith("go"):
        return _go_program(HERE / client)
    return _node_program(HERE / client)


def _node_program(folder: Path) -> list[str]:
    require("node", "npm")
    if not (folder / "node_modules").exists():
        install(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"], folder)
    return ["node", str(folder / "driver.mjs")]


def _go_program(folder: Path) -> list[str]:
    require("go")
    install(["go", "build", "-o", "target/driver", "."], folder)
    return [str(folder / "target" / "driver")]


def _rust_program(folder: Path) -> list[str]:
    require("cargo")
    install(["cargo", "build", "--quiet"], folder)
    return [str(folder / "target" / "debug" / "driver")]


def _java_program(folder: Path, source: Path, version: str = "") -> list[str]:
    """A program of one source file, with the libraries of the folder's pom.xml, the client in that version."""
    require("java", "mvn")
    libraries = folder / "target" / f"lib{version}"
    if not libraries.exists():
        words = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory=target/lib{version}"]
        install([*words, *([f"-Dclient={version}"] if version else [])], folder)
    return ["java", f"-Xmx{HEAP_MB}m", "-cp", f"{libraries}/*", str(source)]


def require(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise Missing(f"{program} is not installed")


def install(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} did not end in {INSTALL_TIMEOUT_S:g} s") from None
    if done.returncode:
        raise Missing(f"{' '.join(command[:2])} failed: {(done.stderr or done.stdout).strip()[-300:]}")


@dataclass
class Driver:
    """A running driver. Orders block until they are answered; events gather per client name."""

    name: str
    process: subprocess.Popen[str]
    _answers: dict[int, Json] = field(default_factory=dict)
    _events: list[Json] = field(default_factory=list)
    _more: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def start(cls, name: str, errors: Path) -> Driver:
        """Start the driver of a client; what it prints on standard error goes to the file. Raises Missing."""
        with errors.open("w") as sink:
            process = subprocess.Popen(
                command_of(name), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True
            )
        driver = cls(name, process)
        threading.Thread(target=driver._read, daemon=True).start()
        return driver

    def order(self, op: str, client: str, **fields: Any) -> Json:
        """The result of one order; ClientError with what the client raised, Missing for what it cannot do."""
        self._check(op, fields)
        number = next(self._ids)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"id": number, "op": op, "client": client, **fields}) + "\n")
        self.process.stdin.flush()
        with self._more:
            assert self._more.wait_for(lambda: number in self._answers, ANSWER_TIMEOUT_S), f"{op} has no answer"
            answer = self._answers.pop(number)
        if "error" in answer:
            raise ClientError(answer["error"]["code"], answer["error"]["text"])
        result: Json = answer["result"]
        return result

    def _check(self, op: str, fields: Json) -> None:
        message = fields.get("message", {})
        needs = {name for name in ("sql", "namespace") if name in fields} | ({_NEEDS[op]} if op in _NEEDS else set())
        needs |= {need for field, need in (("priority", "priority"), ("lite_topic", "lite")) if field in message}
        lacking = sorted(needs.intersection(LACKS.get(self.name, ())))
        if lacking:
            raise Missing(f"it has no {lacking[0]}")

    def events(self, client: str, kind: str = "message") -> list[Json]:
        """The messages of the events that a client has told of so far."""
        with self._more:
            return [event["message"] for event in self._events if (event["client"], event["event"]) == (client, kind)]

    def told(self, *clients: str) -> list[tuple[str, str]]:
        """Client and body of all messages that these clients were given, in the order in which they came."""
        with self._more:
            found = [event for event in self._events if event["client"] in clients and event["event"] == "message"]
        return [(event["client"], event["message"]["body"]) for event in found]

    def wait_for(
        self, client: str, amount: int, kind: str = "message", *, timeout_s: float = EVENT_TIMEOUT_S
    ) -> list[Json]:
        """The events once there are `amount` of them."""
        self.wait_until(lambda: len(self.events(client, kind)) >= amount, timeout_s, lambda: self.events(client, kind))
        return self.events(client, kind)

    def wait_until(self, holds: Callable[[], bool], timeout_s: float, told: Callable[[], Any]) -> None:
        """Wait for a condition over what was told."""
        give_up_s = time.monotonic() + timeout_s
        with self._more:
            while not holds():
                assert time.monotonic() < give_up_s, told()
                self._more.wait(0.1)

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it by ending its input; kill it if it does not obey."""
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            with self._more:
                if "event" in value:
                    self._events.append(value)
                else:
                    self._answers[value["id"]] = value
                self._more.notify_all()
