"""Runs the tests of the hot modules against their compiled form: `python tools/test_compiled.py [PYTEST OPTION ...]`.

They are those that the sources pass in `make test`, with the compiled package in their place, and those that compare
both. Where nothing can be compiled it says so and ends well.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import build_compiled

ROOT = Path(__file__).resolve().parent.parent

TESTED = ("protocol", "model", "transport", "proxy", "broker")
"""Folders of tests/ that go through the hot modules."""

PLAIN_ONLY = (
    # It replaces a method of a class, which a compiled class does not let happen.
    "tests/transport/grpc/test_grpc_connection.py::TestStreams"
    "::test_many_tiny_messages_of_a_chunk_cost_no_more_than_their_bytes",
)

QUICK = "not (process or spark or official or kill or long)"
EXAMPLES = ("--hypothesis-profile", "fixed")
"""The same examples in every run: a change must not fail for an example that it has nothing to do with."""


def main(options: list[str]) -> int:
    missing = build_compiled.what_is_missing()
    if missing is not None:
        print(f"SKIPPED: the compiled hot modules are not tested, because {missing}.", flush=True)
        return 0
    with tempfile.TemporaryDirectory(prefix="millstream-compiled-") as scratch:
        made = build_compiled.build(Path(scratch))
        print(f"{len(made)} modules compiled; the same tests run against them.", flush=True)
        environment = {**os.environ, "PYTHONPATH": scratch, "MILLSTREAM_PLAIN": "0"}
        folders = [str(Path("tests", name)) for name in TESTED]
        skipped = [f"--deselect={name}" for name in PLAIN_ONLY]
        same = [sys.executable, "-m", "pytest", "-q", "-m", QUICK, *EXAMPLES, *skipped, *folders, *options]
        ended = subprocess.run(same, env=environment, cwd=ROOT, check=False).returncode
    both = [sys.executable, "-m", "pytest", "-q", *EXAMPLES, "tests/compiled", *options]
    return ended or subprocess.run(both, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
