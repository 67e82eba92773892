"""The epochs of a log: adding, cutting, and where two logs go apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.replication.epoch_list import EpochList, EpochStart

SIZES = st.lists(st.integers(0, 5), max_size=6)


def epoch_list(*pairs: tuple[int, int]) -> EpochList:
    return EpochList(tuple(EpochStart(*pair) for pair in pairs))


def listed(written: list[int]) -> EpochList:
    """The list of a log of which byte N was written in epoch written[N]."""
    starts = EpochList()
    for position, epoch in enumerate(written):
        if epoch != starts.epoch:
            starts = starts.append(epoch, position)
    return starts


def test_an_empty_epoch_stays_in_the_list_9942() -> None:
    both = epoch_list((1, 0)).append(2, 40).append(3, 40)
    assert both.starts == (EpochStart(1, 0), EpochStart(2, 40), EpochStart(3, 40))
    assert both.at(40) == EpochStart(3, 40)


@pytest.mark.parametrize("pair", [(2, 50), (1, 50), (3, 39), (-1, 50)])
def test_an_epoch_that_does_not_follow_is_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="epoch 2"):
        epoch_list((1, 0), (2, 40)).append(*pair)


def test_cutting_all_leaves_no_epoch_and_cutting_moves_the_last_end() -> None:
    starts = epoch_list((1, 0), (2, 40))
    assert starts.cut_suffix(0) == EpochList()
    assert starts.cut_suffix(20).end_of(1, 20) == 20


def test_an_epoch_is_known_by_its_own_start_after_its_first_part_is_gone() -> None:
    assert epoch_list((1, 0), (2, 40), (3, 90)).cut_prefix(60) == epoch_list((2, 40), (3, 90))


def test_offsets_beyond_two_gibibytes_are_compared_as_they_are() -> None:
    far = 5 * 2**31
    assert epoch_list((1, 0), (2, far)).divergence(far + 9, epoch_list((1, 0), (2, far)), far + 7) == far + 7


def test_epochs_behind_the_end_of_their_log_are_refused() -> None:
    with pytest.raises(ValueError, match="behind the end"):
        EpochList.check([EpochStart(1, 50)], 40)


def test_two_logs_that_share_no_epoch_have_no_common_part() -> None:
    assert epoch_list((1, 0)).divergence(9, epoch_list((2, 0)), 9) is None


@given(shared=SIZES, own=SIZES, other=SIZES)
def test_logs_go_apart_where_their_bytes_do(shared: list[int], own: list[int], other: list[int]) -> None:
    """Each epoch has one writer, so two logs with an epoch in common are the same up to where one of its parts ends."""
    begin = [epoch for epoch, size in enumerate(shared) for _ in range(size)]
    mine = begin + [100 + 2 * epoch for epoch, size in enumerate(own) for _ in range(size)]
    theirs = begin + [101 + 2 * epoch for epoch, size in enumerate(other) for _ in range(size)]
    found = listed(mine).divergence(len(mine), listed(theirs), len(theirs))
    assert found == (len(begin) if begin else None)
    assert found == listed(theirs).divergence(len(theirs), listed(mine), len(mine))


@given(sizes=SIZES, cut=st.integers(0, 40))
def test_cuts_leave_the_list_of_what_is_left(sizes: list[int], cut: int) -> None:
    written = [epoch for epoch, size in enumerate(sizes) for _ in range(size)]
    end = min(cut, len(written))
    assert listed(written).cut_suffix(end) == listed(written[:end])
    kept = listed(written).cut_prefix(end)
    assert all(kept.at(position) == listed(written).at(position) for position in range(end, len(written)))


@given(sizes=SIZES, empty=st.sets(st.integers(0, 5)), position=st.integers(-1, 40), epoch=st.integers(-1, 8))
def test_an_epoch_is_found_by_a_place_in_the_log_and_by_its_start(
    sizes: list[int], empty: set[int], position: int, epoch: int
) -> None:
    pairs, end = [], 0
    for number, size in enumerate(sizes):
        if size or number in empty:
            pairs.append((number, end))
        end += size
    starts = epoch_list(*pairs)
    assert starts.at(position) == next((one for one in reversed(starts.starts) if one.log_offset <= position), None)
    assert starts.end_of(epoch, end) == next((one.log_offset for one in starts.starts if one.epoch > epoch), end)
    assert starts.holds(EpochStart(epoch, position)) == ((epoch, position) in pairs)
    assert all(starts.holds(one) for one in starts.starts)
