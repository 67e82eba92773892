"""`millstream rules run`: evaluate a topic's messages against the rules of a store, and print alerts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from millstream.cli.messages.near_names import cluster
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import print_usage
from millstream.cli.rules.store import Store
from millstream.cli.streams.sql import run_plans, sql_session
from millstream.model.errors import NameRefused
from millstream.model.topic import TopicConfig

__all__ = ["run"]


def run(
    *,
    store: Store,
    topic: str,
    alerts: str | None = None,
    event_time: str | None = None,
    lateness: str = "5 s",
    begin: Annotated[Literal["earliest", "latest"], Parameter(name="--from")] = "earliest",
    count: Annotated[bool, Parameter(name="--statistics", negative="--no-statistics")] = True,
    hits: str | None = None,
    bounded: Annotated[bool, Parameter(negative="")] = False,
    explain: Annotated[bool, Parameter(negative="")] = False,
    checkpoint_dir: Path | None = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Evaluate a store's rules on a topic until Ctrl-C. Changed rules count from the next micro-batch on.

    Example: millstream rules run --store rules --topic events --alerts alerts --checkpoint-dir state.

    Parameters
    ----------
    store
        The directory of the rules.
    topic
        The topic of events, each a JSON object. Others go to the topic of that name with _dead_letter behind it.
    alerts
        The topic of the alerts, which is created if it is missing; without it they are printed.
    event_time
        Fields with an event's time, joined by ;, the first that is there; else the time it was stored.
    lateness
        How late events may come; windows close so much later.
    begin
        Where to start without a checkpoint.
    count
        Also run the rules that count events.
    hits
        A topic through which matches go, packed, to the rules that count: these run as a query of their own then.
    bounded
        Evaluate what is there now, close all windows and end.
    explain
        Show the SQL of the job and start nothing.
    checkpoint_dir
        Where offsets, state and the rules in use are kept, so that the next run goes on; default: this run only.
    """
    from millstream.streams.connectors.options import milliseconds
    from millstream.streams.plan.nodes import JobPlan
    from millstream.streams.rule_formats.alert_script import AlertScript
    from millstream.streams.rules.store import RuleStore

    try:
        delay_ms = milliseconds(lateness)
    except ValueError:
        return print_usage(f"--lateness takes a time such as '5 s', not {lateness!r}.")
    if hits is not None and hits in (topic, alerts):
        return print_usage(f"--hits names a topic for hits alone, such as {topic}_hits, not {hits!r}.")
    rules = RuleStore(store).latest().rules
    source = {"topic": topic, "store": str(store), "scan.startup.mode": f"{begin}-offset"}
    if event_time is not None:
        source["event-time.field"] = event_time
    if hits is not None:
        source["hits.topic"] = hits
    sink = {"connector": "print"} if alerts is None else {"connector": "rocketmq", "topic": alerts}
    script, uncounted = AlertScript(source, sink, delay_ms).text(rules if count else ())
    if explain:
        print(script)
        return ExitCode.DONE
    for one in uncounted:
        print(f"{one.rule} is not counted: {one.reason}.", file=sys.stderr)
    plan = sql_session(common).compile(script)[-1]
    assert isinstance(plan, JobPlan)
    if alerts is not None:
        _make_topic(alerts, common)
    return run_plans([plan], common, bounded=bounded, checkpoint_dir=checkpoint_dir, name="rules")


def _make_topic(name: str, common: CommonOptions) -> None:
    """Create the topic, unless it is there."""
    with cluster(common) as client:
        try:
            client.describe_topic(name)
        except NameRefused:
            client.create_topic(TopicConfig(name))
