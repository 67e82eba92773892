"""`millstream bench`: measure throughput and latency of a server."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, replace
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.bench.load import LoadPlan
from millstream.cli.bench.run import BenchRun, BenchSetting
from millstream.cli.messages.moment import duration_ms
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, print_usage
from millstream.cli.servers.event_loop import loop_factory
from millstream.model.message import MAX_BODY_BYTES
from millstream.model.topic import MAX_QUEUES

__all__ = ["BenchOptions", "consume", "e2e", "produce"]

_E2E_RATE = 100.0
"""Messages a second of `bench e2e` where no rate is named: a closed loop would measure its own queueing."""

_MAX_IN_FLIGHT = 10_000

_Count = Annotated[int, Parameter(validator=Number(gte=1, lte=10_000_000))]
_Batch = Annotated[int, Parameter(validator=Number(gte=1, lte=32))]


@Parameter(name="*")
@dataclass(frozen=True)
class BenchOptions:
    """What all benchmarks take."""

    size: Annotated[int, Parameter(validator=Number(gte=1, lte=MAX_BODY_BYTES), help="Bytes of a body.")] = 100
    in_flight: Annotated[
        int, Parameter(validator=Number(gte=1, lte=_MAX_IN_FLIGHT), help="Calls under way at once, at most.")
    ] = 16
    duration: Annotated[str, Parameter(help="How long is measured, as in 10s or 2m.")] = "10s"
    warm_up: Annotated[str, Parameter(help="How long it runs before that.")] = "1s"
    rate: Annotated[
        float | None,
        Parameter(
            validator=Number(gt=0, lte=1_000_000),
            help="Calls per second, each timed from the moment it was due; without it as fast as answers come.",
        ),
    ] = None
    topic: Annotated[
        str | None,
        Parameter(help="An existing topic, which keeps what is sent; without it one is created and removed again."),
    ] = None
    queues: Annotated[
        int, Parameter(validator=Number(gte=1, lte=MAX_QUEUES), help="Queues of the topic that is created.")
    ] = 4
    grpc: Annotated[
        str | None, Parameter(help="Go over gRPC to the proxy at this HOST:PORT, instead of over remoting.")
    ] = None


def produce(*, options: BenchOptions = BenchOptions(), common: CommonOptions = CommonOptions()) -> int:
    """Send messages, one in each call.

    With --rate a send is timed from the moment it was due, so that a pause of the server counts for all messages that
    it held up (no coordinated omission). Without, from its start: that measures the throughput, not the latency.

    Examples: millstream bench produce --in-flight 64; millstream bench produce --rate 500 --duration 1m -o json;
    millstream bench produce --grpc 127.0.0.1:8081.
    """
    return _run("produce", options, common)


def consume(
    *,
    messages: _Count = 50_000,
    batch: _Batch = 32,
    options: BenchOptions = BenchOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Receive messages: what --topic has, or a topic that is filled first.

    Over remoting each queue is pulled by itself, over and over from its first message on: after the first time that
    is memory, not disk. Over gRPC messages are received and acknowledged, until there is none left.

    Example: millstream bench consume --messages 200000.

    Parameters
    ----------
    messages
        How many messages the topic is filled with, if it is created.
    batch
        Messages of one call at most.
    """
    return _run("consume", options, common, messages=messages, batch=batch)


def e2e(*, batch: _Batch = 32, options: BenchOptions = BenchOptions(), common: CommonOptions = CommonOptions()) -> int:
    """Send and receive at the same time: how long messages are under way, and whether all arrive.

    A message's time runs from the moment it was due to its arrival at a consumer in this process. --rate is 100 unless
    it is named.

    Example: millstream bench e2e --rate 1000 --size 1024 --duration 30s.

    Parameters
    ----------
    batch
        Messages of one receive at most.
    """
    if options.rate is None:
        options = replace(options, rate=_E2E_RATE)
    return _run("e2e", options, common, batch=batch)


def _run(what: str, options: BenchOptions, common: CommonOptions, *, messages: int = 0, batch: int = 32) -> int:
    try:
        plan = LoadPlan(
            options.in_flight,
            _seconds("--duration", options.duration, at_least_s=0.1),
            _seconds("--warm-up", options.warm_up, at_least_s=0.0),
            options.rate,
        )
        setting = BenchSetting(
            what, plan, options.size, options.topic, options.queues, options.grpc, messages, batch,
            common.nameserver, common.timeout_s,
        )  # fmt: skip
        setting.check()
    except ValueError as error:
        return print_usage(str(error))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        report = runner.run(BenchRun(setting).run())
    if report is None:
        print("stopped before anything was measured", file=sys.stderr)
        return ExitCode.INTERRUPTED
    if report.load.first_error is not None and not report.load.messages:
        raise report.load.first_error
    report.show(Printer(common.output))
    if report.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.PARTLY_DONE if report.load.errors or report.missing else ExitCode.DONE


def _seconds(name: str, text: str, *, at_least_s: float) -> float:
    try:
        seconds = duration_ms(text) / 1000
    except ValueError as error:
        raise ValueError(f"{name}: {error}.") from None
    if seconds < at_least_s:
        raise ValueError(f"{name}: {text} is too short; {at_least_s:g} s at least.")
    return seconds
