"""What connections may take of a process's descriptors, and the limit that a process gives itself."""

from __future__ import annotations

import os
import resource

import pytest

from millstream.telemetry.processes import MAX_DESCRIPTORS, descriptor_limit, descriptors_in_use
from millstream.telemetry.processes import raise_descriptor_limit as raise_limit
from millstream.transport.descriptor_budget import MAX_RESERVED_DESCRIPTORS, DescriptorBudget, reserved_descriptors


@pytest.mark.parametrize(("limit", "reserved"), [(256, 128), (1024, 512), (20_000, 4_096), (MAX_DESCRIPTORS, 4_096)])
def test_half_of_the_limit_is_kept_for_files_up_to_a_fixed_number(limit: int, reserved: int) -> None:
    assert reserved_descriptors(limit) == reserved <= MAX_RESERVED_DESCRIPTORS
    assert DescriptorBudget.of_limit(limit).room == limit - reserved


def test_nothing_is_taken_beyond_the_room_and_what_is_freed_can_be_taken_again() -> None:
    budget = DescriptorBudget(5)
    assert [budget.take(3), budget.take(3), budget.take(2), budget.take()] == [True, False, True, False]
    budget.free(3)
    assert budget.take(3)


def test_what_is_open_already_counts_also_where_there_is_no_room() -> None:
    budget = DescriptorBudget(1)
    budget.note()
    budget.note()
    budget.free()
    assert not budget.take()


def test_a_server_that_counts_by_itself_gets_what_it_wants_or_half_of_the_room() -> None:
    budget = DescriptorBudget(100)
    assert budget.set_aside(10_000) == 50
    assert budget.set_aside(20) == 20
    assert budget.used == 70


def test_the_soft_limit_becomes_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        assert descriptor_limit() == 256
        assert raise_limit() == descriptor_limit() == min(hard, MAX_DESCRIPTORS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_descriptors_in_use_are_those_that_are_open() -> None:
    before = descriptors_in_use()
    if before is None:
        pytest.skip("this system shows no descriptors in /proc")
    opened = os.open(os.devnull, os.O_RDONLY)
    assert descriptors_in_use() == before + 1
    os.close(opened)
    assert descriptors_in_use() == before
