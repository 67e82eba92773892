"""What is broken of the job that is scaled, and in which order."""

from __future__ import annotations

import random
from itertools import islice, pairwise

import pytest
from crash.scaled_jobs import SCALING, rounds_of_lives


@pytest.mark.parametrize("seed", range(5))
def test_fifty_rounds_kill_each_part_and_go_over_two_five_and_one_tasks(seed: int) -> None:
    rounds = list(islice(rounds_of_lives(random.Random(seed)), 50))
    parts = {"driver", "java", "executor", "worker", "broker", "server"}
    assert {kind for _, kind in rounds} == {*parts, SCALING}
    tasks = [life.tasks for life, _ in rounds]
    assert [tasks[0], *(after for before, after in pairwise(tasks) if before != after)][:4] == [2, 5, 1, 2]


def test_executors_are_killed_on_the_cluster_alone_and_each_life_ends_with_a_scaling() -> None:
    rounds = list(islice(rounds_of_lives(random.Random(0)), 200))
    assert all(life.is_on_cluster for life, kind in rounds if kind == "executor")
    assert all((life == after) is (kind != SCALING) for (life, kind), (after, _) in pairwise(rounds))
