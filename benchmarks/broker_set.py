"""Real processes for measurements: a nameserver with a controller, and the replicas of one broker."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from millstream.client.blocking import BlockingConnection
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.server.child import RoleProcess
from millstream.telemetry.processes import ProcessTree

__all__ = ["BrokerSet", "cpu_s", "memory_mb", "spread"]

_NAME: Final = "broker-a"
_MB: Final = 1_000_000


class BrokerSet:
    """A nameserver with a controller, and replicas that are started one by one."""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self._directory = directory
        self._running = running
        directory.mkdir()
        options = ("--set", "port=0", "--set", "controller.enabled=true", "--set", "controller.port=0")
        log = directory / "nameserver.log"
        found = running.enter_context(RoleProcess("nameserver", directory / "nameserver", options=options, log=log))
        self.nameserver, self._controller = found.addresses["nameserver"], found.addresses["controller"]
        self.brokers: dict[str, RoleProcess] = {}
        self._line = BlockingConnection(self._controller, timeout_s=5)

    def add(self, name: str, port: str = "0", *, is_alone: bool = False) -> RoleProcess:
        """A replica that is ready, over the directory of that name."""
        settings = [f"port={port}", f"name={_NAME}", f'nameservers=["{self.nameserver}"]']
        if not is_alone:
            settings.append(f'controllers=["{self._controller}"]')
        options = [word for setting in settings for word in ("--set", setting)]
        process = RoleProcess("broker", self._directory / name, options=options, log=self._directory / f"{name}.log")
        self.brokers[name] = self._running.enter_context(process)
        return process

    def log_of(self, name: str) -> str:
        """What a replica has said of itself since its first start."""
        return (self._directory / f"{name}.log").read_text()

    def log_bytes(self, name: str) -> int:
        """How far the log of a replica goes."""
        line = BlockingConnection(self.brokers[name].addresses["broker"], timeout_s=5)
        answer = line.request(RemotingCommand(RequestCode.GET_BROKER_EPOCH_CACHE), 5)
        line.close()
        return int(json.loads(answer.body)["maxOffset"])

    def info(self) -> dict[str, object]:
        """What the controller says of the set."""
        answer = self._line.request(RemotingCommand(1006, {}, json.dumps([_NAME]).encode()), 5)
        found: dict[str, object] = json.loads(answer.body)["replicasInfoTable"].get(_NAME, {})
        return found

    def await_members(self, count: int) -> None:
        """Wait until the set has so many members."""
        deadline_s = time.monotonic() + 120
        while len(self.info().get("inSyncReplicas") or ()) != count:  # type: ignore[arg-type]
            assert time.monotonic() < deadline_s, self.info()
            time.sleep(0.005)

    def master(self) -> str:
        """The name of the master's process."""
        address = self.info()["masterAddress"]
        return next(name for name, one in self.brokers.items() if one.addresses["broker"] == address)


def spread(values: list[float]) -> dict[str, float]:
    """Median, 95th percentile and maximum."""
    ordered = sorted(values)
    shares = {"p50": 50, "p95": 95, "max": 100}
    return {
        name: round(ordered[min(len(ordered) * share // 100, len(ordered) - 1)], 3) for name, share in shares.items()
    }


def memory_mb(process: RoleProcess) -> float:
    """Megabytes that the process holds."""
    [one, *_] = ProcessTree([process.pid]).sample() or []
    return round((one.memory_bytes or 0) / _MB)


def cpu_s(process: RoleProcess) -> float:
    """Processor seconds that the process has had."""
    [one, *_] = ProcessTree([process.pid]).sample() or []
    return one.cpu_s or 0.0
