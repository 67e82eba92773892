"""What the commands of `millstream ingest` share: the target topic, and running a gateway in the foreground."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.messages.near_names import cluster
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.servers.serving import serve
from millstream.model.errors import NameRefused

if TYPE_CHECKING:
    from millstream.ingest.gateway import Gateway, InputPlan
    from millstream.ingest.topic_writer import Target
    from millstream.model.message import Address

__all__ = ["IngestOptions", "collecting", "run_gateway", "state_directory", "target_of"]

MAX_WAITING_MB = 4096
"""MB of `--waiting-mb` at most."""

MAX_STOP_S = 3600
"""Seconds of `--stop-after` at most."""


@Parameter(name="*")
@dataclass(frozen=True)
class IngestOptions:
    """What every input takes."""

    bulk: Annotated[
        bool, Parameter(negative="", help="Send Arrow batches; the topic is made with topic create NAME --batches.")
    ] = False
    key_field: Annotated[
        str | None, Parameter(help="Field of the event's JSON whose value becomes the message's key, as in user.id.")
    ] = None
    tag: Annotated[str | None, Parameter(help="Tag of all messages.")] = None
    tag_field: Annotated[str | None, Parameter(help="Field of the event's JSON whose value becomes the tag.")] = None
    dead_letters: Annotated[
        str | None, Parameter(name="--dead-letters", help="Topic of what cannot be sent as it is.")
    ] = None
    waiting_mb: Annotated[
        int,
        Parameter(
            help="MB of events that may wait for the broker; then files wait, TCP stops reading, HTTP answers 429.",
            validator=Number(gte=1, lte=MAX_WAITING_MB),
        ),
    ] = 64
    stop_after: Annotated[
        float,
        Parameter(
            help="Seconds that a stop waits for the broker to acknowledge what waits.",
            validator=Number(gte=0, lte=MAX_STOP_S),
        ),
    ] = 10.0
    metrics_host: Annotated[str, Parameter(help="Address of the pages.")] = "127.0.0.1"
    metrics_port: Annotated[
        int | None,
        Parameter(help="Port of the pages /metrics and /healthz; 0 takes a free one. Default: no pages."),
    ] = None


def target_of(topic: str, given: IngestOptions) -> Target:
    """Where the events of an input go."""
    from millstream.ingest.event_batch import Labels
    from millstream.ingest.topic_writer import Target

    labels = Labels(given.key_field, given.tag, given.tag_field)
    return Target(topic, given.dead_letters, labels, given.waiting_mb * 1024 * 1024)


def state_directory(topic: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Where positions are kept unless it is said, by the rules for such files on Linux."""
    home = environment.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "millstream" / "ingest" / topic


_collected: ContextVar[list[InputPlan] | None] = ContextVar("collected", default=None)


@contextmanager
def collecting() -> Iterator[list[InputPlan]]:
    """The inputs of the commands that are called within the block, none of which runs."""
    plans: list[InputPlan] = []
    token = _collected.set(plans)
    try:
        yield plans
    finally:
        _collected.reset(token)


def run_gateway(
    inputs: Sequence[InputPlan], given: IngestOptions, common: CommonOptions, *, has_tls: bool = False
) -> int:
    """Run the inputs until a signal, or until all have come to their end; the exit code.

    Within `collecting` they are only noted. PARTLY_DONE where something was lost or left unsent.
    """
    from millstream.ingest.gateway import Gateway, GatewayPlan

    collected = _collected.get()
    if collected is not None:
        collected += inputs
        return ExitCode.DONE
    plan = GatewayPlan(
        inputs, common.nameserver, common.timeout_s, given.metrics_host, given.metrics_port, given.stop_after
    )
    gateway = Gateway(plan, _say)

    def announce(places: Mapping[str, Address]) -> None:
        shown = {name: f"{place.host}:{place.port}" for name, place in places.items()}
        if common.output == "json":
            print(json.dumps(shown), flush=True)
        else:
            print("\n".join(f"  {name:<12} {place}" for name, place in shown.items()), flush=True)

    try:
        serve(gateway, announce, lambda: _farewell(gateway, common), has_tls=has_tls, until=gateway.wait)
    except NameRefused as refused:
        with cluster(common):
            raise refused from None
    return ExitCode.PARTLY_DONE if gateway.has_losses else ExitCode.DONE


def _farewell(gateway: Gateway, common: CommonOptions) -> str:
    return json.dumps(gateway.counts()) if common.output == "json" else gateway.summary()


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
