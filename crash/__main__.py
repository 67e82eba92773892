"""Runs the crash programmes: `python -m crash [--only S1 ...] [--size ci|full|soak] [--seed N] [--keep DIR]`."""

from __future__ import annotations

import argparse
import logging
import secrets
import sys
import tempfile
import time
from pathlib import Path

from crash.catalogue import PROGRAMMES, run_programme
from crash.programme import Size


def main() -> int:
    """0 if every programme passes."""
    parser = argparse.ArgumentParser(description="Crash the product on purpose and check what is left.")
    parser.add_argument("--only", nargs="+", choices=sorted(PROGRAMMES), help="the programmes to run; all without it")
    parser.add_argument("--size", type=Size, choices=list(Size), default=Size.CI)
    parser.add_argument("--seed", type=int, help="repeats a run; a new one is drawn without it")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "millstream-crash")
    arguments = parser.parse_args()
    # Damage is what the programmes make; the store's words about it would fill the screen.
    logging.getLogger("millstream").setLevel(logging.CRITICAL)
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(1_000_000)
    has_failed = False
    for name in arguments.only or PROGRAMMES:
        began_s = time.monotonic()
        run = run_programme(name, seed=seed, size=arguments.size, keep=arguments.keep / name)
        sys.stdout.write(run.verdict(f"{name} {PROGRAMMES[name].title}", time.monotonic() - began_s) + "\n")
        sys.stdout.flush()
        has_failed = has_failed or bool(run.failures)
    return int(has_failed)


if __name__ == "__main__":
    raise SystemExit(main())
