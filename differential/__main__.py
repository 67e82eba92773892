"""`python -m differential`: draws cases, asks Flink and Millstream, and says what differs."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from differential import kept
from differential.cases import Case
from differential.comparison import Difference, differences
from differential.explained import reason_of
from differential.flink import Answer, Flink
from differential.generator import draw_case
from differential.installation import PyFlinkMissing, interpreter
from differential.ours import answer, script_of
from differential.shrinker import shrunk

ROOT = Path(__file__).parent.parent / ".build" / "differential"
VENV = Path(__file__).parent.parent / ".build" / "flink-venv"


class Report:
    """Counts of a run, and what differs as it comes."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.unexplained: list[tuple[Case, Answer]] = []

    def take(self, case: Case, flink: Answer) -> None:
        """Compare one case."""
        ours = answer(case)
        self.counts["queries"] += 1
        self.counts["both refuse"] += bool(flink.refused and ours.refused)
        found = differences(case, flink, ours)
        open_ones = [one for one in found if reason_of(case, flink, one) is None]
        self.reasons.update(reason for one in found if (reason := reason_of(case, flink, one)) is not None)
        self.counts["unexplained" if open_ones else "explained" if found else "equal"] += 1
        if open_ones:
            self.unexplained.append((case, flink))
            _say(_told(case, open_ones))

    def __str__(self) -> str:
        lines = [", ".join(f"{count} {name}" for name, count in self.counts.items() if count)]
        return "\n".join([*lines, *(f"  {count} x {reason}" for reason, count in self.reasons.most_common())])


def main() -> int:
    """Exit code 1 where something differs without a reason."""
    options = argparse.ArgumentParser(prog="differential")
    options.add_argument("--first", type=int, default=0, help="the first seed")
    options.add_argument("--count", type=int, default=500, help="how many queries")
    options.add_argument("--job", type=int, default=20, help="queries of one Flink job")
    options.add_argument("--python", type=Path, help="an interpreter with PyFlink; else one is made")
    options.add_argument("--answers", type=Path, help="where Flink's answers are kept; those in it are not asked again")
    options.add_argument("--no-flink", action="store_true", help="only compare with the answers that are there")
    options.add_argument("--no-shrinking", action="store_true", help="leave what differs as it is")
    given = options.parse_args()
    ROOT.mkdir(parents=True, exist_ok=True)
    report = Report()
    known = list(kept.read(given.answers)) if given.answers else []
    for case, flink in known:
        report.take(case, flink)
    seeds = [seed for seed in range(given.first, given.first + given.count) if seed not in {c.seed for c, _ in known}]
    if seeds and not given.no_flink:
        try:
            python = given.python or interpreter(VENV)
        except PyFlinkMissing as missing:
            _say(f"SKIPPED: nothing was compared with Flink. {missing}")
            return 0
        with Flink(python, ROOT / "flink.log") as flink_process:
            _say("Flink has started.")
            for begin in range(0, len(seeds), given.job):
                cases = [draw_case(seed) for seed in seeds[begin : begin + given.job]]
                for case, told in zip(cases, flink_process.answers(cases), strict=True):
                    if given.answers:
                        kept.append(given.answers, case, told)
                    report.take(case, told)
                _say(f"... {report.counts['queries']} queries, {report.counts['unexplained']} unexplained")
            if not given.no_shrinking:
                for case, _ in report.unexplained:
                    _shrink(case, flink_process)
    _say(str(report))
    return 1 if report.unexplained else 0


def _shrink(case: Case, flink: Flink) -> None:
    small = shrunk(
        case, lambda cases: [_open(one, told) for one, told in zip(cases, flink.answers(cases), strict=True)]
    )
    (told,) = flink.answers([small])
    kept.keep(f"seed_{case.seed}", small, told, None)
    _say(f"The smallest case of seed {case.seed}:\n{_told(small, differences(small, told, answer(small)))}")


def _open(case: Case, flink: Answer) -> frozenset[str]:
    """The aspects in which the answers differ without a reason."""
    found = differences(case, flink, answer(case))
    return frozenset(one.aspect for one in found if reason_of(case, flink, one) is None)


def _told(case: Case, found: list[Difference]) -> str:
    rows = "\n".join(
        f"  {arrival.table} {arrival.after}{'' if arrival.before is None else f' for {arrival.before}'}"
        + (" |" if number in case.cuts else "")
        for number, arrival in enumerate(case.arrivals, 1)
    )
    return (
        f"-- seed {case.seed} {' > '.join(case.kinds)}\n{script_of(case)}{rows}\n" + "\n".join(map(str, found)) + "\n"
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
