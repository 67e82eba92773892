"""S10, kill -9 of the driver of a job whose rules change all the time: one version judges a micro-batch, also twice."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

from crash.job_batches import batches_of_events, end_group, is_done, is_noted, topic_rows
from crash.programme import ProgrammeRun, scratch_directory
from crash.rules_job import ALERTS, EVENTS
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.streams.rules.conditions import Op, Predicate, Truth
from millstream.streams.rules.reference import evaluate
from millstream.streams.rules.rule import Rule, RuleSet
from millstream.streams.rules.store import RuleStore

__all__ = ["kill_rule_jobs"]

_EVENTS = 400
_KEYS = 7
_QUEUES = 2
_MAX_RULES = 5
_LIMIT_S = 900.0
_POLL_S = 0.02
_FAILED_LIVES = 5
"""Lives that may end with an error before the job is a failure: a busy machine starts Python too slowly for Spark."""

_EVERY = Rule("every", "Every event", Truth(True))
"""A rule of all versions, so that each event tells which one judged it."""

Alert = tuple[str, int, int, int]
"""Rule, version, queue, offset."""


def kill_rule_jobs(run: ProgrammeRun) -> None:
    """S10. One kill (CI), ten (full), a hundred (soak); the rules change with nearly every micro-batch."""
    kills = run.by_size(1, 10, 100)
    with scratch_directory() as root, ServerProcess(root / "data") as server:
        nameserver = server.addresses.nameserver
        with BlockingClient(nameserver) as client:
            store = RuleStore(root / "rules")
            store.publish(lambda _none: RuleSet(0, (_EVERY,)))
            for name in (EVENTS, ALERTS):
                client.create_topic(TopicConfig(name, read_queues=_QUEUES, write_queues=_QUEUES))
            for number in range(_EVENTS):
                client.send(Message(EVENTS, json.dumps({"n": number, "k": number % _KEYS}).encode()))
            if _played(run, client, nameserver, root, store, kills):
                _compare(run, client, root, store)


def _played(
    run: ProgrammeRun, client: BlockingClient, nameserver: str, root: Path, store: RuleStore, kills: int
) -> bool:
    """Lives of the job; the first ones are killed a moment after new alerts came, the last one once all is judged."""
    rows = str(_EVENTS // (kills * 4 + 8))
    killed = failed = 0
    while failed <= _FAILED_LIVES:
        command = [sys.executable, "-m", "crash.rules_job", nameserver, str(root), rows]
        with (root / "said").open("ab") as said:
            driver = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        batches = run.random.randint(2, 4) if killed < kills else _EVENTS
        ended = _change_rules(run, client, driver, root, store, batches)
        if not ended:
            _wait_for_batch(driver, root)
            time.sleep(run.random.choice((0.0, 0.05, 0.2, 0.5)))
        is_alive = driver.poll() is None
        end_group(driver)
        driver.wait()
        # What is repeated meets other rules than those that judged it.
        _publish(run, store)
        if ended and is_alive:
            return True
        if is_alive:
            killed += 1
            run.count("kills")
            run.count("killed_in_a_micro_batch", not is_noted(root))
        else:
            failed += 1
            run.count("lives_that_failed")
    run.fail("the job did not go on", root)
    return False


def _change_rules(
    run: ProgrammeRun, client: BlockingClient, driver: subprocess.Popen[bytes], root: Path, store: RuleStore, times: int
) -> bool:
    """New rules each time that alerts came, but the last time, so often or until all is judged; whether it is."""
    limit_s = time.monotonic() + _LIMIT_S
    before, changes = _messages(client), 0
    while driver.poll() is None and changes < times and time.monotonic() < limit_s:
        if is_done(root, _EVENTS):
            return True
        now = _messages(client)
        if now == before:
            time.sleep(_POLL_S)
            continue
        before, changes = now, changes + 1
        if changes < times:
            _publish(run, store)
    return False


def _publish(run: ProgrammeRun, store: RuleStore) -> None:
    store.publish(lambda rules: msgspec.structs.replace(rules, rules=(_EVERY, *_some_rules(run))))
    run.count("publishes")


def _wait_for_batch(driver: subprocess.Popen[bytes], root: Path) -> None:
    """Until a micro-batch is planned that is not noted as delivered: the next life has to judge it again."""
    limit_s = time.monotonic() + _LIMIT_S
    while driver.poll() is None and is_noted(root) and not is_done(root, _EVENTS) and time.monotonic() < limit_s:
        time.sleep(_POLL_S)


def _some_rules(run: ProgrammeRun) -> list[Rule]:
    rules = []
    for number in range(run.random.randint(0, _MAX_RULES)):
        keys = tuple(run.random.sample(range(_KEYS), run.random.randint(1, _KEYS)))
        rules.append(Rule(f"r{number}", "", Predicate("k", Op.IN, keys)))
    return rules


def _messages(client: BlockingClient) -> int:
    return sum(held.range.max_offset for held in client.queue_ranges(ALERTS))


def _compare(run: ProgrammeRun, client: BlockingClient, root: Path, store: RuleStore) -> None:
    """Each alert is there once, and is what the version says that Spark noted for the event's micro-batch."""
    versions = {place: batch.end["rules"] for place, batch in batches_of_events(root).items()}
    if len(set(versions.values())) < 2:
        run.fail("the rules never changed while the job ran", root)
    wanted: Counter[Alert] = Counter()
    for (queue, place), event in topic_rows(client, EVENTS):
        version = versions[queue, place]
        for rule in store.load(version).rules:
            if evaluate(rule.condition, event.get):
                wanted[rule.id, version, queue, place] += 1
    found: Counter[Alert] = Counter(
        (row["rule"], row["version"], row["queue"], row["place"]) for _, row in topic_rows(client, ALERTS)
    )
    run.count("alerts", sum(found.values()))
    run.count("versions", len(set(versions.values())))
    for words, rows in (("too much", found - wanted), ("missing", wanted - found)):
        if rows:
            run.fail(f"{sum(rows.values())} alerts {words}, such as {next(iter(rows))}", root)
