"""The shrinker against judges that know what matters."""

from __future__ import annotations

from collections.abc import Sequence

from differential.cases import Case
from differential.generator import draw_case
from differential.shrinker import shrunk


def test_what_does_not_matter_goes() -> None:
    case = next(case for seed in range(500) if _matters(case := draw_case(seed)) and len(case.kinds) >= 3)

    def judge(cases: Sequence[Case]) -> list[frozenset[str]]:
        return [frozenset({"table"} if _matters(one) else ()) for one in cases]

    small = shrunk(case, judge)
    assert _matters(small)
    assert small.kinds == ("group",)
    assert [arrival.after[2] for arrival in small.arrivals if arrival.after] == [7]
    assert small.cuts == ()


def test_another_kind_of_difference_is_not_the_same() -> None:
    case = draw_case(1)

    def judge(cases: Sequence[Case]) -> list[frozenset[str]]:
        return [frozenset({"table"} if one == case else {"failed"}) for one in cases]

    assert shrunk(case, judge) == case


def test_a_case_without_difference_stays() -> None:
    case = draw_case(2)
    assert shrunk(case, lambda cases: [frozenset() for _ in cases]) == case


def _matters(case: Case) -> bool:
    return "group" in case.kinds and any(
        arrival.table in ("a", "b") and arrival.after is not None and arrival.after[2] == 7 for arrival in case.arrivals
    )
