"""Reference brokers that share a name, as replicas of one set which a controller of ours keeps."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Self

from interop.reference.servers import (
    BROKER_CLASS,
    LOCALHOST,
    SMALL_FILES,
    free_broker_port,
    free_port,
    install_libraries,
    start_server,
)

__all__ = ["ReferenceReplica"]

_HEAP_MB = 256


class ReferenceReplica:
    """One broker in controller mode over `directory`; where it starts again it keeps its address, as in RocketMQ.

    Use it as a context manager. Raises Missing where Java or Maven is missing or it does not start.
    """

    def __init__(self, directory: Path, name: str, *, nameserver: str, controller: str) -> None:
        install_libraries()
        self._running = ExitStack()
        self._directory = directory
        (directory / "conf").mkdir(parents=True, exist_ok=True)
        port = free_broker_port()
        self.address = f"{LOCALHOST}:{port}"
        store = directory / "store"
        self._settings: dict[str, object] = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": name,
            "brokerIP1": LOCALHOST,
            "brokerIP2": LOCALHOST,
            "bindAddress": LOCALHOST,
            "listenPort": port,
            "haListenPort": free_port(),
            "namesrvAddr": nameserver,
            "enableControllerMode": "true",
            "controllerAddr": controller,
            "allAckInSyncStateSet": "true",
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "storePathEpochFile": store / "epochFileCheckpoint",
            "storePathBrokerIdentity": store / "brokerIdentity",
            "autoCreateTopicEnable": "false",
            "diskMaxUsedSpaceRatio": 99,
            **SMALL_FILES,
        }
        self.start()

    def start(self) -> None:
        """Start its process, again after `kill`."""
        try:
            self.process = start_server(
                self._directory, "broker", BROKER_CLASS, _HEAP_MB, self._settings, self._running
            )
        except BaseException:
            self._running.close()
            raise

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._running.close()
