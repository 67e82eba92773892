"""Runs the tests in lanes, one pytest in each: many tests wait for a server or a time, while other lanes compute.

`python tools/run_tests.py [--all] [PYTEST OPTION ...] [-- COMMAND ...]`. A lane takes the next folder of tests/ when it
is done with one; what a folder said is printed when it ends. The command runs in a lane, too. Without `--all` only the
tests that cost little are run, and the smoke tests of the others: tests/costs.py says which. Not
pytest-xdist: each of its workers would collect all tests, a lane collects its folder alone.
"""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

LANES = 4
"""Twice as many as the machines have cores that the suite is made for: a lane waits about a third of its time."""

LONGEST_FIRST = (
    "crash",
    "streams/end_to_end",
    "streams",
    "examples",
    "broker",
    "cli",
    "streams/nexmark",
    "server",
    "interop",
    "store",
    "proxy",
)
"""The order of `--all`, so that no folder is waited for alone at the end; each without those in it that are named."""

QUICK_FIRST = (
    "streams",
    "streams/end_to_end",
    "server",
    "proxy",
    "streams/end_to_end/recovery/test_killed_jobs.py",
    "broker",
    "cli",
    "protocol",
    "store",
    "crash",
    "tools",
    "broker/remoting",
    "transport",
    "streams/rules",
    "streams/operators",
)
"""The order without `--all`: what takes longest, or waits for processes, begins first."""

ALONE = "crash"
"""A folder that `--all` runs before all others, with nothing beside it: its clients are promised answers within
seconds, and it keeps all cores busy by itself."""

ALL = "--all"
"""The option that runs what costs much as well."""

HALVED = "streams/end_to_end"
"""A folder that would be the whole work of a lane; without `--all` it is one session of Spark."""

MEMORY_DISK = Path("/dev/shm")
"""A file system in memory. Most tests start a store of their own, which syncs files; on a disk they wait for that."""

MEMORY_DISK_BYTES = 4 * 1024**3
"""Room that the file system in memory must have: lanes use up to 1 GiB at a time."""

NO_TESTS = 5
"""Pytest's exit code where its options leave nothing to run in a folder."""

ROOT = Path(__file__).parent.parent

TESTS = ROOT / "tests"

sys.path.insert(0, str(TESTS))

from costs import QUICK  # noqa: E402 - tests/ is on no path before

CLASSES = ROOT / ".build" / "classes"
"""As in tests/conftest.py."""

COMPILED = ("src", "crash", "differential", "interop", "examples")
"""Folders beside tests/ whose modules the tests start in processes of their own, hundreds of them."""


class Ended(NamedTuple):
    """A program that has ended: its exit code, all that it said, and how long it ran."""

    name: str
    code: int
    said: str
    seconds: float


Step = Callable[[], Ended]
"""Runs one program to its end."""


def groups(*, run_all: bool) -> list[list[Path]]:
    """The paths of each pytest; together they are all folders of tests/."""
    named = [TESTS / name for name in (LONGEST_FIRST if run_all else QUICK_FIRST)]
    alone = [part for path in named if path.exists() for part in _halves(path, named, run_all=run_all)]
    others = [path for path in sorted(TESTS.iterdir()) if any(path.rglob("test_*.py")) and path not in named]
    return [*alone, others]


def _halves(folder: Path, named: list[Path], *, run_all: bool) -> list[list[Path]]:
    """What is to be run of a folder, by two programs if one would take too long."""
    if not run_all or folder != TESTS / HALVED:
        return [_parts(folder, named)]
    files = sorted(folder.rglob("test_*.py"))
    return [files[::2], files[1::2]]


def _parts(folder: Path, named: list[Path]) -> list[Path]:
    """What is to be run of a folder: itself, or what is in it besides the named ones."""
    if not any(folder in path.parents for path in named):
        return [folder]
    others = [path for path in sorted(folder.iterdir()) if path not in named and _has_tests(path)]
    return [part for path in others for part in _parts(path, named)]


def _has_tests(path: Path) -> bool:
    return path.match("test_*.py") or any(path.rglob("test_*.py"))


def run(name: str, command: list[str]) -> Ended:
    """Run a program to its end."""
    began_s = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return Ended(name, done.returncode, done.stdout, time.monotonic() - began_s)


def run_tests(paths: list[Path], options: list[str]) -> Ended:
    """Run the tests at the paths, named by their folders."""
    folders = paths if len(paths) == 1 else dict.fromkeys(path if path.is_dir() else path.parent for path in paths)
    name = " ".join(str(path.relative_to(TESTS)) for path in folders)
    ended = run(name, [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *options, *map(str, paths)])
    return ended._replace(code=0) if ended.code == NO_TESTS else ended


def steps(options: list[str], command: list[str], *, run_all: bool) -> list[list[Step]]:
    """Everything that is to be run, in the order in which the lanes take it; what is in one list runs side by side."""
    archive = [sys.executable, str(ROOT / "tools" / "archive_classes.py")]
    alone, together = list[Step](), list[Step]()
    if command:
        together.append(partial(run, " ".join(command), command))
    if run_all:
        together.append(partial(run, "the archive of Spark's classes", archive))
    else:
        options = ["-m", QUICK, "--hypothesis-profile", "quick", *options]
    for paths in groups(run_all=run_all):
        is_alone = run_all and paths == [TESTS / ALONE]
        (alone if is_alone else together).append(partial(run_tests, paths, options))
    return [alone, together]


def class_archives(*, run_all: bool) -> str:
    """Where Spark's classes are archived; `off` without one for a few sessions: they do not earn back its making."""
    is_made = any(CLASSES.glob("*.jsa"))
    return str(CLASSES) if run_all or is_made else "off"


@contextmanager
def temporary_root(*, run_all: bool) -> Iterator[None]:
    """Have temporary directories in memory while the block runs, if there is room; with `--all` on the disk."""
    if run_all or not MEMORY_DISK.is_dir() or shutil.disk_usage(MEMORY_DISK).free < MEMORY_DISK_BYTES:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tests-", dir=MEMORY_DISK, ignore_cleanup_errors=True) as root:
        # Database servers run as users of their own, and read files below it.
        os.chmod(root, 0o711)
        os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = root
        yield


def take(pool: ThreadPoolExecutor, side_by_side: list[Step]) -> list[str]:
    """Run the steps in the lanes and print what each said when it ends; the names of those that failed."""
    failed = list[str]()
    for future in as_completed([pool.submit(step) for step in side_by_side]):
        ended = future.result()
        print(f"== {ended.name} ({ended.seconds:.0f} s)\n{ended.said}", flush=True)
        if ended.code:
            failed.append(ended.name)
    return failed


def main() -> int:
    """0 if the tests of every folder pass, and the command does."""
    run_all = ALL in sys.argv[1:]
    arguments = [word for word in sys.argv[1:] if word != ALL]
    mark = arguments.index("--") if "--" in arguments else len(arguments)
    began_s, failed = time.monotonic(), list[str]()
    # Without bytecode each pytest rewrites its plugins anew, for 2 s.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("MILLSTREAM_CLASS_ARCHIVES", class_archives(run_all=run_all))
    for name in COMPILED:
        # As an installation does, whatever the environment says: else each process compiles all modules anew.
        compileall.compile_dir(ROOT / name, quiet=2)
    with temporary_root(run_all=run_all), ThreadPoolExecutor(LANES) as pool:
        try:
            for side_by_side in steps(arguments[:mark], arguments[mark + 1 :], run_all=run_all):
                failed += take(pool, side_by_side)
        except KeyboardInterrupt:
            # The terminal told the running ones too; the waiting ones must not begin.
            pool.shutdown(wait=False, cancel_futures=True)
            failed.append("interrupted")
    print(f"{'FAIL: ' + ', '.join(failed) if failed else 'PASS'} ({time.monotonic() - began_s:.0f} s)")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
