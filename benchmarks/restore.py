"""Large states: how long a start reads them from each place, what a snapshot delays, what a micro-batch costs."""

from __future__ import annotations

import gc
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from benchmarks.operators import COUNT, SUM
from millstream.server.child import ServerProcess
from millstream.streams.jobs.topic_files import TopicFiles
from millstream.streams.operators.grouping import Grouper
from millstream.streams.operators.key_groups import DEFAULT_KEY_GROUPS, KeyGroups
from millstream.streams.spark.operators import stage as stages
from millstream.streams.spark.operators.arrow_files import ArrowStateFiles
from millstream.streams.spark.operators.packing import OF_EACH_ROW, Packer
from millstream.streams.spark.operators.stage import OperatorSpec, OperatorStage
from millstream.streams.spark.runtime.micro_batch import ToldTime, collector_paused
from millstream.streams.spark.source.topic_log import open_log
from millstream.streams.state.group_log import GroupLog
from millstream.streams.state.mirrored_directory import MirroredDirectory
from millstream.streams.state.state_files import LocalStateFiles, StateFiles

__all__ = ["measure_restore", "measure_turns"]

_KEYS = int(os.environ.get("RESTORE_KEYS", "1000000"))
_POPULATIONS = [int(keys) for keys in os.environ.get("TURN_KEYS", "1000,100000,1000000,5000000").split(",")]
_FILL_KEYS = 100_000
_TURN_KEYS = 1_000
_ROWS_PER_KEY = 20
_TURNS = int(os.environ.get("TURNS", "120"))
_WARM_TURNS = 10
_SNAPSHOT_EVERY = 5
_COPIED_TURNS = 50
_TASKS = 2
_MIB = 2**20
_GROUPS = KeyGroups(DEFAULT_KEY_GROUPS, _TASKS)
_OUTPUT = pa.schema(
    [
        pa.field("key", pa.int64()),
        pa.field("count", pa.int64()),
        pa.field("sum", pa.int64()),
        pa.field("__kind", pa.int8()),
        pa.field("__tick", pa.timestamp("us", "UTC")),
    ]
)


class _Job:
    """An aggregate by key, whose tasks run here one after the other; its state lies in `files`."""

    def __init__(self, files: StateFiles, scratch: Path) -> None:
        make = partial(Grouper, 1, (COUNT, SUM), changing=False)
        late = str(scratch / "late")
        self.spec = OperatorSpec("job", "sums", make, _GROUPS, files, (3,), (0,), _OUTPUT, late, ToldTime(1))
        self.batch_id = 0

    def turn(self, keys: np.ndarray) -> float:
        """Processor seconds of a micro-batch with a row for each of the keys, without the packing."""
        groups = (keys * 2654435761 % 2**32 % _GROUPS.count).astype(np.int32)
        nulls = pa.nulls(len(keys), pa.int64())
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(keys),
                pa.array(keys),
                pa.array(keys % 1000),
                pa.array(groups),
                pa.array(["q/0"] * len(keys)),
                nulls,
                nulls,
            ],
            names=["c0", "c1", "c2", *OF_EACH_ROW],
        )
        packed = list(Packer(0, _GROUPS, width=3, kinds=False, source=0)(iter([batch])))
        stages.micro_batch = lambda: self.batch_id  # type: ignore[assignment]
        began_s = time.process_time()
        for _ in OperatorStage(self.spec)(iter(packed)):
            pass
        self.batch_id += 1
        return time.process_time() - began_s

    def fill(self, keys: int) -> None:
        for start in range(0, keys, _FILL_KEYS):
            self.turn(np.arange(start, min(start + _FILL_KEYS, keys), dtype=np.int64))

    def restore_s(self) -> float:
        """Seconds in which the tasks read their state, one after the other."""
        stages._kept_states.clear()
        began_s = time.perf_counter()
        found = 0
        with collector_paused():
            for task in range(_TASKS):
                kept = stages._KeptState(self.spec, _GROUPS.range_of(task))
                kept.restore(self.batch_id)
                found += sum(state.keys for state in kept._states.values())
        took_s = time.perf_counter() - began_s
        if found < _KEYS:
            raise AssertionError(f"{found} values of {_KEYS} keys")
        return took_s


def measure_restore() -> dict[str, object]:
    """RESTORE_KEYS keys (1 million) of COUNT and SUM in 128 groups of two tasks, read one after the other."""
    found: dict[str, object] = {"keys": _KEYS, "groups": _GROUPS.count, "tasks": _TASKS}
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        local = _Job(LocalStateFiles(scratch / "job" / "operators" / "sums"), scratch)
        local.fill(_KEYS)
        found["disk_mib"] = round(_bytes(scratch / "job") / _MIB, 1)
        found["disk_s"] = round(local.restore_s(), 2)
        found["topic"] = _measure_topic(local, scratch)
        with _object_store() as address:
            if address is None:
                found["object_store"] = "there is no moto_server"
            else:
                found["object_store"] = _measure_store(local, address, scratch)
    return found


def _measure_topic(local: _Job, scratch: Path) -> dict[str, float]:
    with ServerProcess(scratch / "broker") as server:
        nameserver = server.addresses.nameserver
        make = partial(TopicFiles, "state", "job", lambda: open_log(nameserver, timeout_s=30))
        sender = make()
        sender.prepare()
        copy = MirroredDirectory(scratch / "job", sender, lambda name: True)
        began_s = time.perf_counter()
        moment = copy.look()
        copy.send(moment)
        copy.name(moment, "bench", {"batch": local.batch_id})
        sent_s = time.perf_counter() - began_s
        turn_ms = _copy_turns_ms(copy, scratch / "job")
        sender.close()
        reader = make()
        other = _Job(LocalStateFiles(scratch / "other" / "operators" / "sums"), scratch)
        other.batch_id = local.batch_id
        began_s = time.perf_counter()
        target = MirroredDirectory(scratch / "other", reader, lambda name: True)
        head = target.head()
        assert head is not None
        target.bring_back(head, but="")
        brought_s = time.perf_counter() - began_s
        reader.close()
        return {
            "send_s": round(sent_s, 2),
            "copy_of_a_turn_ms": round(turn_ms, 1),
            "bring_back_s": round(brought_s, 2),
            "whole_s": round(brought_s + other.restore_s(), 2),
        }


def _copy_turns_ms(copy: MirroredDirectory, directory: Path) -> float:
    """The median of what a micro-batch waits for its copy, which has 100 KiB of state more than the one before."""
    took_ms = []
    for number in range(_COPIED_TURNS):
        (directory / "operators" / "sums" / f"{number}.new").write_bytes(os.urandom(100 * 1024))
        copy.send(copy.look())
        (directory / "offset").write_text(str(number))
        began_s = time.perf_counter()
        moment = copy.look()
        copy.send(moment)
        copy.name(moment, "bench", {"batch": number})
        took_ms.append((time.perf_counter() - began_s) * 1000)
    return median(took_ms)


def _measure_store(local: _Job, address: str, scratch: Path) -> dict[str, float]:
    files = ArrowStateFiles.at(address)
    source = local.spec.files
    began_s = time.perf_counter()
    for name in source.sizes():
        files.write(name, source.read(name))
    sent_s = time.perf_counter() - began_s
    other = _Job(files, scratch)
    other.batch_id = local.batch_id
    return {"send_s": round(sent_s, 2), "whole_s": round(other.restore_s(), 2)}


def measure_turns() -> dict[str, object]:
    """TURNS micro-batches (120) of 20,000 rows of 1,000 keys, over TURN_KEYS keys; processor ms of both tasks together.

    Every fifth of them takes a snapshot, both tasks of some groups each.
    `snapshot_delay_max_ms` is what the dearest micro-batch with a snapshot took beyond the median of those without.
    """
    found: dict[str, object] = {}
    for keys in _POPULATIONS:
        said = subprocess.run(
            [sys.executable, "-m", "benchmarks.restore", str(keys)], stdout=subprocess.PIPE, text=True, check=True
        )
        found[f"{keys}_keys"] = json.loads(said.stdout)
        print(keys, found[f"{keys}_keys"], flush=True)
    return found


def _turns(keys: int) -> dict[str, float]:
    chance = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        directory = scratch / "state"
        job = _Job(LocalStateFiles(directory), scratch)
        job.fill(keys)
        # As behind each task of Spark, see TaskEndCollector.
        gc.collect()
        gc.freeze()
        # A large state takes snapshots too rarely to see some.
        GroupLog._has_grown = lambda _log: job.batch_id % _SNAPSHOT_EVERY == 0  # type: ignore[method-assign]
        plain, with_snapshots = [], []
        for number in range(_TURNS):
            some = chance.choice(keys, _TURN_KEYS, replace=False)
            before = job.batch_id
            took_ms = job.turn(np.repeat(some, _ROWS_PER_KEY)) * 1000
            took = list(directory.glob(f"{before}.*.groups"))
            if number >= _WARM_TURNS:
                (with_snapshots if took else plain).append(took_ms)
    figures = {"p50_cpu_ms": median([*plain, *with_snapshots]), "plain_p50_cpu_ms": median(plain or [0.0])}
    if with_snapshots and plain:
        figures |= {
            "snapshot_delay_p50_ms": median(with_snapshots) - median(plain),
            "snapshot_delay_max_ms": max(with_snapshots) - median(plain),
            "snapshots": len(with_snapshots),
        }
    return {name: round(value, 1) for name, value in figures.items()}


def _bytes(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


@contextmanager
def _object_store() -> Iterator[str | None]:
    """The address of a bucket of moto's S3 server in a process of its own; None where it is not installed."""
    program = shutil.which("moto_server")
    if program is None:
        yield None
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_EC2_METADATA_DISABLED="true")
    server = subprocess.Popen(
        [program, "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(
            lambda: urllib.request.urlopen(
                urllib.request.Request(f"http://127.0.0.1:{port}/states", method="PUT")
            ).close()
        )
        yield f"s3://states/job?endpoint_override=127.0.0.1%3A{port}&scheme=http&region=us-east-1"
    finally:
        server.terminate()
        server.wait()


def _wait_for(call: Callable[[], None]) -> None:
    until_s = time.monotonic() + 60
    while True:
        try:
            return call()
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    print(json.dumps(_turns(int(sys.argv[1]))))
