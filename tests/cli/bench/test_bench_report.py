"""What a benchmark tells, and what it says that it does not know."""

from __future__ import annotations

import pytest

from millstream.cli.bench.load import Load, LoadPlan
from millstream.cli.bench.report import BenchReport, CpuMeter
from millstream.cli.printer import Printer
from millstream.telemetry.counters import LatencyRecorder


def report(*, rate: float | None = None, latency_s: float = 0.01, lateness_s: float = 0.0) -> BenchReport:
    async def nothing(_worker: int, _number: int, _due_s: float) -> int:
        return 1

    load = Load(LoadPlan(4, 10.0, 1.0, rate), nothing, lambda: None, messages=2_000, seconds=4.0)
    load.latency.add(latency_s)
    load.lateness.add(lateness_s)
    return BenchReport("produce", "remoting", "t", True, 100, load, CpuMeter(None), load.latency, "of a send")


def test_figures_are_told_by_message() -> None:
    run = report()
    run.cpu = CpuMeter(1, [(1.0, 2.0), (1.5, 2.25)])
    values = run.values()
    assert values["messages_per_s"] == 500.0
    assert (values["client_cpu_us_per_message"], values["server_cpu_us_per_message"]) == (250.0, 125.0)
    assert values["latency_ms"] == {"p50": 10.0, "p90": 10.0, "p99": 10.0, "p99_9": 10.0, "max": 10.0}


def test_what_is_not_known_is_null_and_never_zero(capsys: pytest.CaptureFixture[str]) -> None:
    run = report()
    run.latency = LatencyRecorder()
    values = run.values()
    assert values["server_cpu_us_per_message"] is None
    assert values["latency_ms"] == dict.fromkeys(("p50", "p90", "p99", "p99_9", "max"))
    run.show(Printer("plain"))
    shown = capsys.readouterr()
    assert "server unknown" in shown.out
    assert "the server's processor time is unknown" in shown.err


def test_a_rate_that_was_too_high_and_a_late_generator_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    run = report(rate=10, latency_s=0.01, lateness_s=0.009)
    run.load.not_started = 7
    run.show(Printer("plain"))
    said = capsys.readouterr().err
    assert "7 calls were due and could not begin" in said
    assert "generator's own lateness (9" in said
    report(rate=10, latency_s=0.01, lateness_s=0.001).show(Printer("plain"))
    assert "lateness" not in capsys.readouterr().err
