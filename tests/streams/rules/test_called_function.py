"""The names under which stored rules know the functions that they call."""

from __future__ import annotations

import pytest

from millstream.streams.rule_formats.sigma.times import part_is
from millstream.streams.rules.called_function import function_of


def test_a_stored_rule_finds_its_function_after_its_module_has_moved() -> None:
    assert function_of("millstream.streams.rules.sigma.times:part_is") is part_is


def test_any_function_is_found_by_its_name() -> None:
    assert function_of("math:hypot")(3, 4) == 5
    with pytest.raises(AttributeError):
        function_of("math:nothing")
