"""A reference nameserver and broker from Maven's artefacts, as programs with little memory."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from interop.driver import Missing, install, require
from millstream.client.blocking import BlockingConnection
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = [
    "BROKER_CLASS",
    "LOCALHOST",
    "PROXY_HEAP_MB",
    "SMALL_FILES",
    "ReferenceServers",
    "end_process",
    "free_broker_port",
    "free_port",
    "install_libraries",
    "start_server",
]

_HERE = Path(__file__).parent
_LIBRARIES = _HERE / "target" / "lib"
_READY = "boot success"
_READY_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 20.0
LOCALHOST = "127.0.0.1"
_OPENED = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
_NAMESERVER_CLASS = "org.apache.rocketmq.namesrv.NamesrvStartup"
BROKER_CLASS = "org.apache.rocketmq.broker.BrokerStartup"
_PROXY_CLASS = "org.apache.rocketmq.proxy.ProxyStartup"
_PROXY_READY = "rocketmq-proxy startup successfully"
PROXY_HEAP_MB = 1024
"""Heap of a broker with a proxy in its process."""

SMALL_FILES = {
    "mappedFileSizeCommitLog": 64 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 200_000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "mappedFileSizeTimerLog": 1024 * 1024,
}


class ReferenceServers:
    """Both servers on free ports over `directory`, ready when the constructor returns; use it as a context manager.

    With `nameserver`, the `host:port` of one that runs already, the broker registers there and no other is started.
    `sync_flush` is the broker's ack level; `metrics_page` is where its metrics are told. With `has_proxy` the broker's
    process is a proxy as well (its local mode): `grpc` is where it serves.
    Raises Missing where Java or Maven is missing or a server does not start.
    """

    def __init__(
        self, directory: Path, *, sync_flush: bool = False, nameserver: str | None = None, has_proxy: bool = False
    ) -> None:
        install_libraries()
        self._directory = directory
        self._running = ExitStack()
        (directory / "conf").mkdir(parents=True)
        broker_port, self._metrics_port = free_broker_port(), free_port()
        self.broker = f"{LOCALHOST}:{broker_port}"
        self.metrics_page = f"http://{LOCALHOST}:{self._metrics_port}/metrics"
        try:
            self.nameserver = nameserver or self._start_nameserver()
            settings = self._broker_settings(broker_port, sync_flush)
            self.broker_process = (
                self._start_with_proxy(settings) if has_proxy else self._start("broker", BROKER_CLASS, 384, settings)
            )
            self._wait_for_registration()
        except BaseException:
            self._running.close()
            raise

    def _start_nameserver(self) -> str:
        port = free_port()
        self.nameserver_process = self._start(
            "nameserver", _NAMESERVER_CLASS, 128, {"listenPort": port, "bindAddress": LOCALHOST}
        )
        return f"{LOCALHOST}:{port}"

    def _wait_for_registration(self) -> None:
        """The nameserver may hear of the broker some seconds after both say that they are there."""
        give_up_s = time.monotonic() + _READY_TIMEOUT_S
        connection = BlockingConnection(self.nameserver, timeout_s=_READY_TIMEOUT_S)
        try:
            while time.monotonic() < give_up_s:
                question = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
                if self.broker.encode() in connection.request(question, _READY_TIMEOUT_S).body:
                    return
                time.sleep(0.1)
        finally:
            connection.close()
        raise Missing("the reference broker did not register with its nameserver")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._running.close()

    def _broker_settings(self, port: int, sync_flush: bool) -> dict[str, object]:
        store = self._directory / "store"
        return {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": LOCALHOST,
            "bindAddress": LOCALHOST,
            "listenPort": port,
            "haListenPort": free_port(),
            "namesrvAddr": self.nameserver,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "flushDiskType": "SYNC_FLUSH" if sync_flush else "ASYNC_FLUSH",
            # As ours: topics are made on purpose, conditions in SQL are understood, delayed messages can be recalled.
            "autoCreateTopicEnable": "false",
            "enablePropertyFilter": "true",
            "recallMessageEnable": "true",
            "transactionTimeOut": 2000,
            "transactionCheckInterval": 2000,
            "transactionOpBatchInterval": 100,
            "diskMaxUsedSpaceRatio": 99,
            "metricsExporterType": "PROM",
            "metricsPromExporterHost": LOCALHOST,
            "metricsPromExporterPort": self._metrics_port,
            **SMALL_FILES,
        }

    def _start_with_proxy(self, settings: dict[str, object]) -> subprocess.Popen[bytes]:
        grpc_port = free_port()
        self.grpc = f"{LOCALHOST}:{grpc_port}"
        of_broker, of_proxy = (self._directory / "conf" / name for name in ("broker.conf", "rmq-proxy.json"))
        _write_settings(of_broker, settings)
        ports = {"grpcServerPort": grpc_port, "remotingListenPort": free_port(), "localServeAddr": LOCALHOST}
        names = {"rocketMQClusterName": "DefaultCluster", "proxyClusterName": "DefaultCluster"}
        of_proxy.write_text(json.dumps({**ports, **names, "namesrvAddr": self.nameserver, "proxyMode": "LOCAL"}))
        words = ("-pm", "local", "-bc", str(of_broker), "-pc", str(of_proxy), "-n", self.nameserver)
        return _run(self._directory, "proxy", _PROXY_CLASS, PROXY_HEAP_MB, words, self._running, _PROXY_READY)

    def _start(self, name: str, main_class: str, heap_mb: int, settings: dict[str, object]) -> subprocess.Popen[bytes]:
        return start_server(self._directory, name, main_class, heap_mb, settings, self._running)


def start_server(
    directory: Path, name: str, main_class: str, heap_mb: int, settings: dict[str, object], running: ExitStack
) -> subprocess.Popen[bytes]:
    """A server that has said that it is ready; its files are in `directory`, and `running` ends it. Raises Missing."""
    configuration = directory / "conf" / f"{name}.conf"
    _write_settings(configuration, settings)
    return _run(directory, name, main_class, heap_mb, ("-c", str(configuration)), running, _READY)


def _write_settings(file: Path, settings: dict[str, object]) -> None:
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def _run(
    directory: Path, name: str, main_class: str, heap_mb: int, words: Sequence[str], running: ExitStack, ready: str
) -> subprocess.Popen[bytes]:
    home = [f"-Drocketmq.home.dir={directory}", f"-Duser.home={directory}"]
    memory = [f"-Xmx{heap_mb}m", "-XX:MaxDirectMemorySize=256m", "-XX:+UseSerialGC"]
    said = directory / f"{name}.txt"
    with said.open("wb") as sink:
        process = subprocess.Popen(
            ["java", *memory, *home, *_OPENED, "-cp", f"{_LIBRARIES}/*", main_class, *words],
            stdout=sink,
            stderr=sink,
            env={**os.environ, "RMQ_PROXY_HOME": str(directory)},
        )
    running.callback(end_process, process)
    give_up_s = time.monotonic() + _READY_TIMEOUT_S
    while ready not in said.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > give_up_s:
            raise Missing(f"the reference {name} did not start: {said.read_text(errors='replace')[-500:]}")
        time.sleep(0.1)
    return process


def install_libraries() -> None:
    """Have the servers' libraries in place. Raises Missing."""
    require("java", "mvn")
    if not any(_LIBRARIES.glob("rocketmq-proxy-*.jar")):
        install(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=target/lib"], _HERE)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and kill it where it does not in time."""
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.create_server((LOCALHOST, 0)) as taken:
        return int(taken.getsockname()[1])


def free_broker_port() -> int:
    """A port whose neighbour two below, which the broker takes as well, is free too."""
    while True:
        port = free_port()
        try:
            with socket.create_server((LOCALHOST, port - 2)):
                return port
        except OSError:
            continue
