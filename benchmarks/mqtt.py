"""The MQTT port of one process under a load of its own process, beside mosquitto where that is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millstream.server.child import ServerProcess

__all__ = ["measure_mqtt"]

_LOADS = (
    ("publish1", 8, 64),
    ("publish1", 64, 1),
    ("publish2", 8, 64),
    ("through", 8, 64),
    ("fan", 100, 0),
    ("idle", 1000, 0),
    ("idle-lasting", 1000, 0),
    ("reconnect", 1000, 0),
)
_OPTIONS = ("--mqtt-port", "0", "--amqp-port", "off", "--http-port", "off")
_MOSQUITTO_PORT = 18_831
_START_S = 2.0


def measure_mqtt(seconds: float = 5.0) -> dict[str, object]:
    """Messages a second and processor microseconds of server and load a message, bytes a session, by server and load.

    Ours stores every message, and mosquitto keeps them in memory.
    """
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as scratch:
        with ServerProcess(Path(scratch) / "data", options=_OPTIONS) as process:
            found["millstream"] = _loaded(process.addresses.protocols["mqtt"], process.pid, seconds)
        if shutil.which("mosquitto") is not None:
            with _mosquitto(Path(scratch)) as pid:
                found["mosquitto"] = _loaded(f"127.0.0.1:{_MOSQUITTO_PORT}", pid, seconds)
    return found


def _loaded(address: str, pid: int, seconds: float) -> dict[str, object]:
    found: dict[str, object] = {}
    for kind, connections, in_flight in _LOADS:
        words = [kind, str(connections), str(in_flight), str(seconds), str(pid)]
        command = [sys.executable, "-m", "benchmarks.mqtt_load", address, *words]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        found[f"{kind} {connections}x{in_flight}"] = json.loads(said)
    return found


@contextmanager
def _mosquitto(folder: Path) -> Iterator[int]:
    """Its process, with the window that ours has."""
    lines = (
        f"listener {_MOSQUITTO_PORT} 127.0.0.1",
        "allow_anonymous true",
        "set_tcp_nodelay true",
        "max_inflight_messages 100",
    )
    configuration = folder / "mosquitto.conf"
    configuration.write_text("\n".join(lines) + "\n")
    process = subprocess.Popen(["mosquitto", "-c", str(configuration)], stderr=subprocess.DEVNULL)
    try:
        time.sleep(_START_S)
        yield process.pid
    finally:
        process.terminate()
        process.wait()
