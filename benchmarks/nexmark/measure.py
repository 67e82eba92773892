"""Events a second and processor seconds of each query through our broker, and beside Flink over the same events."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.job_runs import measured_run
from benchmarks.nexmark.scripts import CEP, QUERIES, topic_script
from benchmarks.nexmark.topic import fill_topic, write_lines
from millstream.server.child import ServerProcess
from millstream.streams.errors import JobError, SqlError
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["FLINK_PYTHON", "measure_nexmark"]

FLINK_PYTHON = "FLINK_PYTHON"
"""Names in the environment the Python of a place where `apache-flink` is installed; without it Flink is left out."""

_EVENTS = int(os.environ.get("NEXMARK_EVENTS", "200000"))
_QUERIES = tuple(os.environ.get("NEXMARK_QUERIES", ",".join(QUERIES + CEP)).split(","))
_RATE = 10_000
_WARM_UP = "q1"
_LIMIT_S = 1_800.0
_FLINK = Path(__file__).parent / "flink.py"

Figures = dict[str, Any]


def measure_nexmark() -> Figures:
    """Each query over NEXMARK_EVENTS events, on one session that is warm; NEXMARK_QUERIES names some of them.

    Processor seconds are of driver, JVM, workers and the broker together; those of Flink, of its client and JVM.
    """
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        words = directory / "words.csv"
        words.write_text("".join(f"{key},word {key}\n" for key in range(10_000)))
        ours, theirs = _measure_both(directory, words)
    both = [name for name in _QUERIES if "seconds" in ours[name] and "seconds" in theirs.get(name, {})]
    ratios = {name: round(ours[name]["events_per_s"] / theirs[name]["events_per_s"], 2) for name in both}
    sums = {
        engine: {
            "seconds": round(sum(found[name]["seconds"] for name in both), 1),
            "cpu_s_per_million": round(sum(found[name]["cpu_s_per_million"] for name in both), 1),
        }
        for engine, found in (("ours", ours), ("flink", theirs))
    }
    load = {"load_15_min": round(os.getloadavg()[2], 1)}
    return {"events": _EVENTS, **load, "ours": ours, "flink": theirs, "ours_to_flink": ratios, "sums_of_both": sums}


def _measure_both(directory: Path, words: Path) -> tuple[dict[str, Figures], dict[str, Figures]]:
    """One engine right behind the other for each query, so that a busy machine slows down both."""
    with ServerProcess(directory / "data") as server:
        nameserver = server.addresses.nameserver
        fill_topic(nameserver, _EVENTS, _RATE)
        session = start_session(SessionOptions())
        flink = _Flink(directory)
        found: dict[str, Figures] = {}
        theirs: dict[str, Figures] = {}
        try:
            for name in (_WARM_UP, *_QUERIES):
                number = len(list(directory.glob("checkpoint*")))
                runner = JobRunner(session, nameserver=nameserver, checkpoint_root=directory / f"checkpoint{number}")
                values = {"SIDE_INPUT": str(words), "OUTPUT": str(directory / f"bids{number}")}
                found[name] = _one(runner, nameserver, name, values)
                print(name, found[name], flush=True)
                if name in _QUERIES and flink.is_there:
                    theirs[name] = flink.measure(name)
        finally:
            session.stop()
    return found, theirs


def _one(runner: JobRunner, nameserver: str, name: str, values: dict[str, str]) -> Figures:
    try:
        plan = SqlSession(nameserver=nameserver, variables=values).compile(topic_script(name))[-1]
        assert isinstance(plan, JobPlan)
        run = measured_run(partial(runner.start, plan, name="nexmark", bounded=True), _LIMIT_S)
    except (JobError, SqlError) as error:
        return {"refused": str(error).splitlines()[0]}
    progress = run.progress
    return {**_figures(run.seconds, run.cpu_s), "rows_out": sum(progress.rows_out.values()), "late": progress.late}


def _figures(seconds: float, cpu_s: float) -> Figures:
    return {
        "seconds": round(seconds, 2),
        "events_per_s": round(_EVENTS / seconds),
        "cpu_s_per_million": round(cpu_s * 1_000_000 / _EVENTS, 1),
    }


class _Flink:
    """Queries in PyFlink over the same events, which lie in a file."""

    def __init__(self, directory: Path) -> None:
        self._python = os.environ.get(FLINK_PYTHON, "")
        self.is_there = bool(self._python)
        self._directory = directory
        self._lines = directory / "events"
        if self.is_there:
            self._lines.mkdir()
            write_lines(self._lines / "events.json", _EVENTS, _RATE)

    def measure(self, name: str) -> Figures:
        """A process for each query: it tells the seconds from the start of the job to its end, not of its own start."""
        command = [self._python, str(_FLINK), str(self._lines), str(self._directory), name]
        said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        lines = [line for line in said.stdout.splitlines() if line.startswith("{")]
        told: Figures = json.loads(lines[-1]) if lines else {"refused": f"ended with {said.returncode}"}
        print("flink", name, told, flush=True)
        return _figures(told["seconds"], told["cpu_s"]) if "seconds" in told else told
