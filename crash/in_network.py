"""A programme that needs a network of its own runs in a child: `python -m crash.in_network NAME SEED SIZE KEEP`."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import msgspec

from crash.network import namespace_words
from crash.programme import ProgrammeRun, Size, scratch_directory

__all__ = ["SKIPPED", "run_in_network"]

SKIPPED = "network_skipped"
"""What is counted where the system lets us make no network."""


class _Told(msgspec.Struct):
    """What the child found."""

    counts: dict[str, int | float]
    failures: list[str]


def run_in_network(run: ProgrammeRun, name: str) -> None:
    """Run the programme of that name where networks can be made, and take over what it found."""
    words = namespace_words()
    if words is None:
        run.count(SKIPPED)
        return
    child = [sys.executable, "-m", "crash.in_network", name, str(run.seed), str(run.size), str(run.keep)]
    done = subprocess.run([*words, *child], capture_output=True, text=True, check=False)
    try:
        told = msgspec.json.decode(done.stdout.rpartition("\n")[2], type=_Told)
    except msgspec.DecodeError:
        run.fail(f"the programme broke off: {done.stderr.strip()[-1000:]}")
        return
    run.counts |= told.counts
    for failure in told.failures:
        run.fail(failure)


def main() -> int:
    """0; what was found is the last line of the output."""
    # Only here, because these modules name this one.
    from crash.cut_brokers import cut_proxy_from_brokers
    from crash.cut_nameservers import cut_brokers_from_nameservers
    from crash.false_replicas import deceive_masters
    from crash.replica_cuts import cut_replicas
    from crash.replica_kills import kill_replicas

    name, seed, size, keep = sys.argv[1:]
    logging.getLogger("millstream").setLevel(logging.CRITICAL)
    with scratch_directory() as scratch:
        run = ProgrammeRun(int(seed), Size(size), scratch, Path(keep))
        {
            "C3": kill_replicas,
            "C4": cut_replicas,
            "C5": deceive_masters,
            "N3": cut_proxy_from_brokers,
            "N4": cut_brokers_from_nameservers,
        }[name](run)
    sys.stdout.write(msgspec.json.encode(_Told(run.counts, run.failures)).decode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
