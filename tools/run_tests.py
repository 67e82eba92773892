"""Runs the tests in two lanes, one pytest in each: many tests wait for a server or a time, while another lane computes.

`python tools/run_tests.py [PYTEST OPTION ...]`. A lane takes the next folder of tests/ when it is done with one; what
a folder said is printed when it ends.
"""

from __future__ import annotations

import compileall
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

LANES = 2
"""As many as the machines have cores that the suite is made for."""

LONGEST_FIRST = (
    "streams/end_to_end",
    "crash",
    "streams/nexmark",
    "cli",
    "streams",
    "server",
    "examples",
    "interop",
    "broker",
    "store",
    "proxy",
)
"""Folders that none is waited for alone at the end, each without those in it that are named; then all others."""

NO_TESTS = 5
"""Pytest's exit code where its options leave nothing to run in a folder."""

TESTS = Path(__file__).parent.parent / "tests"

COMPILED = ("src", "crash", "interop", "examples")
"""Folders beside tests/ whose modules the tests start in processes of their own, hundreds of them."""


def groups() -> list[list[Path]]:
    """The paths of each pytest; together they are all folders of tests/."""
    named = [TESTS / name for name in LONGEST_FIRST]
    alone = [_parts(path, named) for path in named if path.is_dir()]
    others = [path for path in sorted(TESTS.iterdir()) if any(path.rglob("test_*.py")) and path not in named]
    return [*alone, others]


def _parts(folder: Path, named: list[Path]) -> list[Path]:
    """What is to be run of a folder: itself, or what is in it besides the named ones."""
    inside = [path for path in named if folder in path.parents]
    if not inside:
        return [folder]
    return [path for path in sorted(folder.iterdir()) if path not in inside and any(path.rglob("test_*.py"))]


def run(paths: list[Path], options: list[str]) -> tuple[str, int, str, float]:
    """What was run, pytest's exit code, all that it said, and the seconds."""
    began_s = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *options, *map(str, paths)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return (
        " ".join(str(path.relative_to(TESTS)) for path in paths),
        done.returncode,
        done.stdout,
        time.monotonic() - began_s,
    )


def main() -> int:
    """0 if every folder's tests pass."""
    began_s, failed = time.monotonic(), list[str]()
    for name in COMPILED:
        # As an installation does, whatever the environment says: else each process compiles all modules anew.
        compileall.compile_dir(TESTS.parent / name, quiet=2)
    with ThreadPoolExecutor(LANES) as pool:
        lanes = [pool.submit(run, paths, sys.argv[1:]) for paths in groups()]
        try:
            for ended in as_completed(lanes):
                name, code, said, seconds = ended.result()
                print(f"== {name} ({seconds:.0f} s)\n{said}", flush=True)
                if code not in (0, NO_TESTS):
                    failed.append(name)
        except KeyboardInterrupt:
            # The terminal told the running ones too; the waiting ones must not begin.
            pool.shutdown(wait=False, cancel_futures=True)
            failed.append("interrupted")
    print(f"{'FAIL: ' + ', '.join(failed) if failed else 'PASS'} ({time.monotonic() - began_s:.0f} s)")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
