"""Months, weeks and fields of times on plain numbers."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.streams.functions.calendar import (
    DAY_US,
    MONTHS_OF_UNITS,
    UNITS_US,
    add_months,
    add_units,
    ceil_to_unit,
    field_of,
    floor_to_unit,
    units_between,
)

_BOUNDS = (*UNITS_US, *MONTHS_OF_UNITS)
_DATES = st.dates(datetime.date(1600, 1, 1), datetime.date(2400, 12, 31)).map(
    lambda date: (date - datetime.date(1970, 1, 1)).days
)
_TIMES = st.datetimes(datetime.datetime(1600, 1, 1), datetime.datetime(2400, 12, 31)).map(
    lambda time: (time - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
)


@settings(deadline=None)
@given(_DATES, _DATES)
def test_months_between_dates_are_as_many_as_can_be_added(one: int, other: int) -> None:
    start, end = sorted((one, other))
    months = units_between(start * DAY_US, end * DAY_US, "MONTH")
    assert months is not None
    reached, next_one = add_months(start, months), add_months(start, months + 1)
    assert reached is not None
    assert next_one is not None
    assert reached <= end < next_one
    assert units_between(end * DAY_US, start * DAY_US, "MONTH") == -months


@settings(deadline=None)
@given(_TIMES, st.sampled_from(_BOUNDS))
def test_a_time_lies_between_the_bounds_of_each_unit(time: int, unit: str) -> None:
    floor, ceiling = floor_to_unit(time, unit), ceil_to_unit(time, unit)
    assert floor is not None
    assert ceiling is not None
    assert floor <= time <= ceiling
    assert ceiling == (floor if floor == time else add_units(floor, unit, 1))
    assert floor_to_unit(floor, unit) == floor
    assert ceil_to_unit(ceiling, unit) == ceiling


def test_a_week_begins_on_sunday_and_is_counted_from_monday() -> None:
    sunday = datetime.date(2026, 11, 22).toordinal() - datetime.date(1970, 1, 1).toordinal()
    assert floor_to_unit(sunday * DAY_US + 5, "WEEK") == sunday * DAY_US
    assert field_of(sunday * DAY_US, "WEEK") == 47
    assert field_of((sunday + 1) * DAY_US, "WEEK") == 48


@pytest.mark.parametrize("unit", _BOUNDS)
def test_what_leaves_the_years_1_to_9999_is_none(unit: str) -> None:
    assert add_units(0, unit, 10**18) is None
    assert add_units(0, unit, -(10**18)) is None
