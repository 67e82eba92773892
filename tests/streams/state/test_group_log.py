"""The log of key groups: whoever reads it, with whatever range, finds the state as each micro-batch left it."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import pytest

from millstream.streams.errors import JobError
from millstream.streams.operators.key_groups import KeyGroups
from millstream.streams.state import group_log
from millstream.streams.state.group_log import SHARED, GroupLog
from millstream.streams.state.state_files import LocalStateFiles

COUNT = 16

State = dict[int, dict[str, int]]


class Task:
    """A task that keeps numbers by key in each group, as a worker does with an operator's state."""

    def __init__(self, directory: Path, groups: range) -> None:
        self.log = GroupLog(LocalStateFiles(directory), groups, COUNT)
        self.state: State = {}
        self.version = -1

    def begin(self, before: int) -> None:
        """Bring the state to where it was before that micro-batch."""
        if self.version == before - 1:
            return
        if self.version >= 0 and self.log.can_follow(self.version, before):
            changes = self.log.follow(self.version, before)
        else:
            self.state, changes = {}, self.log.restore(before)
        for sections in changes:
            for group, change in sections.items():
                self.state.setdefault(group, {}).update(pickle.loads(change))

    def turn(self, version: int, changes: State) -> None:
        """One micro-batch: `changes` of its groups, and the number of the micro-batch for what all share."""
        self.begin(version)
        own = {group: change for group, change in changes.items() if group in self.log.groups}
        for group, change in {SHARED: {"batch": version}, **own}.items():
            self.state.setdefault(group, {}).update(change)
        deltas = {group: pickle.dumps(change) for group, change in own.items()}
        present = sorted(group for group in self.state if group != SHARED)
        shared = pickle.dumps({"batch": version})
        self.log.keep(version, deltas, lambda group: pickle.dumps(self.state[group]), present, shared=shared)
        self.version = version


def tasks_of(directory: Path, count: int) -> list[Task]:
    dealt = KeyGroups.deal(COUNT, count)
    return [Task(directory, dealt.range_of(task)) for task in range(dealt.tasks)]


def found_in(directory: Path, before: int, count: int) -> State:
    whole: State = {}
    for task in tasks_of(directory, count):
        task.begin(before)
        whole.update(task.state)
    return whole


@pytest.mark.parametrize("seed", range(40))
def test_state_is_the_same_whatever_the_tasks_crashes_and_snapshots(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(group_log, "MIN_SNAPSHOT_BYTES", chance.choice([0, 300, 100_000]))
    monkeypatch.setattr(group_log, "SNAPSHOT_BYTES", chance.choice([1, 200, 100_000]))
    monkeypatch.setattr(group_log, "MAX_DELTAS", chance.choice([1, 5, 200]))
    monkeypatch.setattr(group_log, "MIN_KEPT_VERSIONS", chance.choice([0, 2, 20]))
    states: list[State] = [{}]
    tasks = tasks_of(tmp_path, 2)
    version = 0
    while version < 60:
        if chance.random() < 0.15:
            # A new start, with any number of tasks; sometimes the last micro-batch is repeated.
            tasks = tasks_of(tmp_path, chance.choice([1, 2, 3, 5, COUNT]))
            version -= chance.random() < 0.5 and version > 0
            del states[version + 1 :]
        turn_chance = random.Random(version * 1_000 + seed)
        changes = {
            group: {f"k{turn_chance.randrange(4)}": version}
            for group in turn_chance.sample(range(COUNT), turn_chance.randrange(COUNT))
        }
        after = {group: dict(values) for group, values in states[version].items()}
        for group, change in {SHARED: {"batch": version}, **changes}.items():
            after.setdefault(group, {}).update(change)
        states.append(after)
        for task in tasks:
            # Another process runs the task now and then; one that was passed over may come again.
            other = Task(tmp_path, task.log.groups) if chance.random() < 0.2 else task
            other.turn(version, changes)
        version += 1
        if chance.random() < 0.3:
            readers = chance.choice([1, 2, 4, COUNT])
            assert found_in(tmp_path, version, readers) == states[version]
            assert found_in(tmp_path, version - 1, readers) == states[version - 1]
    assert found_in(tmp_path, version, 7) == states[version]


def test_deltas_give_way_to_snapshots_of_a_few_groups_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_log, "MIN_SNAPSHOT_BYTES", 2_000)
    monkeypatch.setattr(group_log, "SNAPSHOT_BYTES", 1_000)
    [task] = tasks_of(tmp_path, 1)
    most = 0
    for version in range(600):
        task.turn(version, {version % COUNT: {f"k{version % 7}": version}})
        snapshots = [
            file for file in tmp_path.iterdir() if file.name.startswith(f"{version}.") and "groups" in file.name
        ]
        most = max([most, *(file.stat().st_size for file in snapshots)])
    names = [file.name for file in tmp_path.iterdir()]
    assert 0 < most < 1_500
    assert len([name for name in names if name.endswith(".delta")]) < 100
    assert len([name for name in names if name.endswith(".groups")]) < 30


def test_a_start_reads_at_most_so_many_deltas_of_a_state_that_hardly_changes(tmp_path: Path) -> None:
    [task] = tasks_of(tmp_path, 1)
    for version in range(450):
        task.turn(version, {3: {"k": version}})
    assert len(list(tmp_path.glob("*.delta"))) <= group_log.MAX_DELTAS + group_log.MIN_KEPT_VERSIONS + 2


def test_files_of_other_ranges_go_once_new_snapshots_cover_them(tmp_path: Path) -> None:
    for task in tasks_of(tmp_path, 2):
        for version in range(30):
            task.turn(version, {group: {"k": version} for group in range(COUNT)})
    tasks = tasks_of(tmp_path, 3)
    for version in range(30, 60):
        for task in tasks:
            task.turn(version, {group: {"k": version} for group in range(COUNT)})
    assert not [file.name for file in tmp_path.iterdir() if ".0-7." in file.name or ".8-15." in file.name]


def test_files_of_the_format_before_are_read(tmp_path: Path) -> None:
    [task] = tasks_of(tmp_path, 1)
    task.turn(0, {1: {"k": 1}})
    [file] = tmp_path.iterdir()
    content = file.read_bytes()
    assert content.startswith(b"MSG2")
    file.write_bytes(content.replace(b"MSG2", b"MSG1", 1))
    assert found_in(tmp_path, 1, 1)[1] == {"k": 1}


@pytest.mark.parametrize("damage", ["cut", "flipped", "blank"])
def test_a_damaged_file_is_refused_by_its_name(damage: str, tmp_path: Path) -> None:
    [task] = tasks_of(tmp_path, 1)
    task.turn(0, {1: {"k": 1}})
    [file] = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes({"cut": file.read_bytes()[:-1], "flipped": bytes(content), "blank": b""}[damage])
    with pytest.raises(JobError, match=r"0\.0-15\.delta in .* is damaged") as refusal:
        found_in(tmp_path, 1, 1)
    assert refusal.value.name == "CHECKPOINT_DAMAGED"
