"""Cases that once differed from Flink, with Flink's answers: equal now, or different with a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from differential.comparison import differences, table_of
from differential.explained import reason_of
from differential.generator import draw_case
from differential.ours import answer, answer_on_spark

from differential.kept import KEPT, read_kept

FILES = sorted(KEPT.glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_ours_says_what_flink_said(file: Path) -> None:
    case, flink, reason = read_kept(file)
    found = differences(case, flink, answer(case))
    unknown = [one for one in found if reason is None or reason_of(case, flink, one) != reason]
    assert unknown == [], "\n".join(map(str, unknown))


@pytest.mark.parametrize("seed", range(25))
def test_micro_batches_change_no_result_where_no_row_is_late(seed: int) -> None:
    case = draw_case(seed)
    if not case.has_late:
        cuts = [(), case.cuts, tuple(range(1, len(case.arrivals)))]
        first, *others = (table_of(answer(replace(case, cuts=one)).changes) for one in cuts)
        assert others == [first, first]


@pytest.mark.spark
@pytest.mark.parametrize("seed", [0, 2, 5, 11])
def test_a_job_on_spark_says_what_its_plan_does_without(seed: int) -> None:
    case = draw_case(seed)
    alone, job = answer(case), answer_on_spark(case)
    assert table_of(job.changes) == table_of(alone.changes)
    assert not alone.failed + alone.refused
