"""S5, kill -9 inside the features: pop, acknowledgement, delay, transaction and their saves, at named points."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crash.fault_points import POINTS
from crash.feature_load import DEAD_TOPIC, INVISIBLE_MS, TOPICS, TRANSACTIONAL, FeatureLoad, broker_of
from crash.history import Event, read_history
from crash.programme import ProgrammeRun, scratch_directory
from millstream.broker.broker import Broker
from millstream.broker.queues.reader import Reader

__all__ = ["EARLY_TOLERANCE_S", "Story", "judge", "kill_inside_features", "stories_of"]

EARLY_TOLERANCE_S = 0.1
"""How long before its due time a message may be delivered: two clocks round differently."""

QUIET_S = 3.0
"""How long nothing may come before the last drain ends: longer than a message can be out of sight."""

_KILLED = -9
_DRAIN_LIMIT_S = 120.0


def kill_inside_features(run: ProgrammeRun) -> None:
    """S5. Each point once (CI), 20 times (full), 1,000 times (soak), all over one store."""
    points = run.sample(list(POINTS))
    lives = [name for name in points for _ in range(run.by_size(1, 20, 1_000))]
    run.random.shuffle(lives)
    with scratch_directory(on_disk=True) as root:
        data, histories = root / "data", root / "histories"
        histories.mkdir()
        reached: Counter[str] = Counter()
        for life, point in enumerate(lives):
            at_call = run.random.randint(1, POINTS[point].most_calls)
            is_killed = _one_life(run, data, histories, f"{life}", point, at_call)
            # The point may be too rare for that; then the first call must do.
            reached[point] += is_killed or _one_life(run, data, histories, f"{life}-again", point, 1)
        for point in points:
            if not reached[point]:
                run.fail(f"the point {point} was never reached")
        asyncio.run(_drain(run, data, histories))
        if run.failures:
            run.fail("the data and histories of this run", root)


def _one_life(run: ProgrammeRun, data: Path, histories: Path, life: str, point: str, at_call: int) -> bool:
    """Whether a life came to its point."""
    words = (data, histories, life, point, at_call, run.random.randrange(1 << 30), *_unfinished(histories))
    command = [sys.executable, "-m", "crash.feature_load", *map(str, words)]
    code = subprocess.run(command, check=False).returncode
    run.count("kills" if code == _KILLED else "lives_that_ended")
    if code not in (0, _KILLED):
        run.fail(f"life {life}, which was to end at {point}, ended with {code}")
    return code == _KILLED


def _unfinished(histories: Path) -> list[str]:
    """Transactions whose end was asked for and not answered, each as NAME=RESOLUTION."""
    stories = stories_of(read_history(histories))
    return [f"{name}={story.end}" for name, story in stories.items() if story.end and not story.is_ended]


@dataclass(slots=True)
class Story:
    """What clients know of one message; times are monotonic seconds."""

    topic: str = ""
    checksum: int = 0
    due_s: float = 0.0
    is_sent: bool = False
    recall: str = ""
    end: str = ""
    is_ended: bool = False
    delivered_s: list[float] = field(default_factory=list)
    acked_s: list[tuple[str, float]] = field(default_factory=list)
    """With the life in which it was."""

    altered: bool = False

    def legal_copies(self) -> tuple[int, int]:
        """How often the message may be in its topic at least and at most, once nothing waits any more."""
        if self.topic == TRANSACTIONAL:
            # A transaction that was ended was sent, whether or not the send was answered.
            return (1, 1) if self.end == "commit" else (0, 0)
        if self.recall == "recalled":
            return 0, 0
        return (1, 1) if self.is_sent and self.recall != "recall" else (0, 1)


def stories_of(events: Sequence[Event]) -> dict[str, Story]:
    """The messages of a history by their names."""
    stories: defaultdict[str, Story] = defaultdict(Story)
    for event in events:
        if event.kind in ("saving", "saved"):
            continue
        story = stories[event.message]
        match event.kind:
            case "invoke":
                story.topic, story.checksum, story.due_s = event.queue, event.checksum, event.due_s
            case "ok":
                story.is_sent = True
            case "recall" | "recalled" | "not-recalled":
                story.recall = event.kind
            case "end":
                story.end, story.is_ended = event.lane, False
            case "ended":
                story.is_ended = True
            case "delivered":
                story.delivered_s.append(event.at_s)
                story.altered = story.altered or event.checksum != story.checksum
            case "acked":
                story.acked_s.append((event.lane, event.at_s))
    return dict(stories)


def judge(events: Sequence[Event], copies: Mapping[tuple[str, str], int]) -> list[str]:
    """Broken promises, each with its message. `copies` says how often a topic holds a message, the drain being over."""
    broken = []
    stories, saves = stories_of(events), _saves(events)
    for name, story in stories.items():
        if not story.topic:
            broken.append(f"{name} was delivered and never sent")
            continue
        least, most = story.legal_copies()
        found = copies.get((story.topic, name), 0)
        if not least <= found <= most:
            broken.append(f"{name} is {found} times in its topic, not {least} to {most} ({story})")
        if found and not story.delivered_s and not copies.get((DEAD_TOPIC, name), 0):
            broken.append(f"{name} was never delivered")
        if story.altered:
            broken.append(f"{name} was delivered with another body")
        if story.delivered_s and story.delivered_s[0] < story.due_s - EARLY_TOLERANCE_S:
            broken.append(f"{name} was delivered {story.due_s - story.delivered_s[0]:.3f} s before its time")
        broken += _delivered_after_ack(name, story, saves)
    return broken


def _saves(events: Sequence[Event]) -> dict[str, list[tuple[float, float]]]:
    """By life, when offsets were read for a save, and when that save was on the disk."""
    began_s = {event.message: event.at_s for event in events if event.kind == "saving"}
    saves: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event.kind == "saved":
            saves[event.lane].append((began_s[event.message], event.at_s))
    return saves


def _delivered_after_ack(name: str, story: Story, saves: Mapping[str, Sequence[tuple[float, float]]]) -> list[str]:
    """An acknowledgement that a finished save has is never forgotten; a life knows those of its own."""
    for life, acked_s in story.acked_s:
        kept_s = min((saved_s for began_s, saved_s in saves.get(life, ()) if began_s > acked_s), default=float("inf"))
        again = [at_s for at_s in story.delivered_s if at_s > kept_s]
        if again:
            return [f"{name} was delivered {again[0] - kept_s:.3f} s after its acknowledgement was saved"]
    return []


async def _drain(run: ProgrammeRun, data: Path, histories: Path) -> None:
    """Let all timers come, end what is unfinished, consume the rest, and hold the topics against the histories."""
    broker = broker_of(data)
    await broker.start()
    load = FeatureLoad(broker, histories, "drain", run.seed)
    await load.end_unfinished(_unfinished(histories))
    until_s = time.monotonic() + _DRAIN_LIMIT_S
    while broker.maintenance.timers.pending or broker.maintenance.timers.unscheduled:
        if time.monotonic() > until_s:
            run.fail(f"{broker.maintenance.timers.pending} delayed messages still wait")
            break
        await asyncio.sleep(0.05)
    await asyncio.gather(*(_consume_rest(load, topic, until_s) for topic in TOPICS))
    copies = _copies(broker)
    await broker.close()
    load.close()
    events = read_history(histories)
    for broken in judge(events, copies):
        run.fail(broken)
    stories = stories_of(events).values()
    run.counts |= {
        "messages": len(stories),
        "delivered_again": sum(max(len(story.delivered_s) - 1, 0) for story in stories),
        "acknowledged": sum(bool(story.acked_s) for story in stories),
        "recalled": sum(story.recall == "recalled" for story in stories),
        "committed": sum(story.end == "commit" for story in stories),
        "dead_letters": sum(count for (topic, _), count in copies.items() if topic == DEAD_TOPIC),
    }


async def _consume_rest(load: FeatureLoad, topic: str, until_s: float) -> None:
    quiet_s, window_s = 0.0, INVISIBLE_MS / 1000
    while quiet_s < QUIET_S and time.monotonic() < until_s:
        came = await load.consume(topic, time.monotonic() + window_s, ack_all=True)
        quiet_s = 0.0 if came else quiet_s + window_s


def _copies(broker: Broker) -> Counter[tuple[str, str]]:
    reader, found = Reader(broker.maintenance.store), Counter[tuple[str, str]]()
    for topic in (*TOPICS, DEAD_TOPIC):
        for queue_id in range(2):
            for queue_offset in range(broker.maintenance.store.max_offset(topic, queue_id)):
                message = reader.message_at(topic, queue_id, queue_offset)
                if message is not None:
                    found[topic, message.message_id] += 1
    return found
