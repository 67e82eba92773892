"""The report of a benchmark, as values for JSON and as lines of text."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from millstream.cli.bench.load import Load
from millstream.cli.printer import Printer
from millstream.telemetry.counters import LatencyRecorder
from millstream.telemetry.processes import ProcessTree

__all__ = ["BenchReport", "CpuMeter"]

_PERCENTILES = (("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99_9", 99.9))


@dataclass
class CpuMeter:
    """Processor seconds of this process and of the server's, between two calls of `take`."""

    server_pid: int | None
    taken: list[tuple[float, float | None]] = field(default_factory=list)

    def take(self) -> None:
        """Note what was used until now."""
        server_s = None
        if self.server_pid is not None:
            samples = ProcessTree([self.server_pid]).sample()
            server_s = sum(sample.cpu_s for sample in samples) if samples else None
        self.taken.append((time.process_time(), server_s))

    def per_message_us(self, messages: int) -> tuple[float | None, float | None]:
        """Of this process and of the server; None for what is not known."""
        if len(self.taken) < 2 or not messages:
            return None, None
        (client_from_s, server_from_s), (client_s, server_s) = self.taken[0], self.taken[-1]
        of_server = None if server_s is None or server_from_s is None else server_s - server_from_s
        return (
            round((client_s - client_from_s) / messages * 1e6, 1),
            None if of_server is None else round(of_server / messages * 1e6, 1),
        )


@dataclass
class BenchReport:
    """One finished run."""

    what: str
    protocol: str
    topic: str
    own_topic: bool
    size: int
    load: Load
    cpu: CpuMeter
    latency: LatencyRecorder
    latency_of: str
    """What the times are of, in words."""
    delivered: int | None = None
    missing: int | None = None
    duplicates: int | None = None
    interrupted: bool = False

    def values(self) -> dict[str, object]:
        """For JSON; None is not known or not measured."""
        load, plan = self.load, self.load.plan
        client_us, server_us = self.cpu.per_message_us(load.messages)
        error = load.first_error
        values: dict[str, object] = {
            "what": self.what,
            "protocol": self.protocol,
            "topic": self.topic,
            "own_topic": self.own_topic,
            "size": self.size,
            "in_flight": plan.in_flight,
            "rate": plan.rate,
            "warm_up_s": plan.warm_up_s,
            "seconds": round(load.seconds, 3),
            "messages": load.messages,
            "messages_per_s": round(load.messages / load.seconds, 1) if load.seconds else None,
            "latency_ms": _times(self.latency),
            "latency_of": self.latency_of,
            "client_cpu_us_per_message": client_us,
            "server_cpu_us_per_message": server_us,
            "server_pid": self.cpu.server_pid,
            "errors": load.errors,
            "first_error": str(error) if error is not None else None,
            "interrupted": self.interrupted,
        }
        if plan.rate is not None:
            values |= {"not_started": load.not_started, "generator_late_ms": _times(load.lateness)}
        if self.delivered is not None:
            values |= {"delivered": self.delivered, "missing": self.missing, "duplicates": self.duplicates}
        return values

    def show(self, printer: Printer) -> None:
        """Print it."""
        if printer.format == "json":
            print(json.dumps(self.values(), ensure_ascii=False), flush=True)
        else:
            print("\n".join(self._lines()), flush=True)
        for warning in self._warnings():
            print(f"note: {warning}", file=sys.stderr)

    def _lines(self) -> Iterator[str]:
        load, plan = self.load, self.load.plan
        own = " (made for it, removed again)" if self.own_topic else ""
        pace = f"{plan.rate:g} a second" if plan.rate is not None else "as fast as the answers come"
        yield f"{self.what} over {self.protocol}, topic {self.topic}{own}"
        yield f"load          bodies of {self.size:,} bytes, {plan.in_flight} in flight at most, {pace}"
        per_s = f"{load.messages / load.seconds:,.0f} a second" if load.seconds else "-"
        yield f"messages      {load.messages:,} in {load.seconds:.1f} s, {per_s}"
        if self.delivered is not None:
            yield f"delivered     {self.delivered:,}; missing {self.missing:,}, twice {self.duplicates:,}"
        times = "  ".join(f"{name.replace('_', '.')} {_ms(value)}" for name, value in _times(self.latency).items())
        yield f"latency       {times}"
        yield f"              {self.latency_of}"
        client_us, server_us = self.cpu.per_message_us(load.messages)
        server = f"server {_us(server_us)}" + (f" (all that process {self.cpu.server_pid} did)" if server_us else "")
        yield f"processor     a message: this client {_us(client_us)}, {server}"
        yield f"errors        {load.errors}" + (f", the first one: {load.first_error}" if load.errors else "")

    def _warnings(self) -> Iterator[str]:
        load, plan = self.load, self.load.plan
        if not load.messages:
            yield "nothing was measured; allow more --duration, or less --warm-up"
        if load.not_started:
            many = f"{load.not_started:,} calls were due and could not begin, and their times are not among these"
            yield f"{many}: lower --rate or raise --in-flight"
        late_ms = load.lateness.percentile_ms(99)
        latency_ms = self.latency.percentile_ms(99)
        if plan.rate is not None and late_ms and latency_ms and late_ms > latency_ms / 2:
            yield f"half of the p99 is this generator's own lateness ({_ms(late_ms)}): the machine is too busy for it"
        if self.cpu.server_pid is None:
            yield "the server's processor time is unknown: it is on another machine, or another user's process"


def _times(latency: LatencyRecorder) -> dict[str, float | None]:
    times = {name: latency.percentile_ms(percent) for name, percent in _PERCENTILES}
    return {**times, "max": latency.max_ms}


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g} ms" if value < 1000 else f"{value:,.0f} ms"


def _us(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f} µs"
