"""Fills a topic with Nexmark's events: `python -m benchmarks.nexmark fill`."""

from __future__ import annotations

import argparse

from benchmarks.nexmark.topic import TOPIC, fill_topic


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nexmark", description="Nexmark's events in a topic.")
    parser.add_argument("command", choices=["fill"])
    parser.add_argument("--nameserver", default="127.0.0.1:9876")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=10_000, help="events a second of event time")
    arguments = parser.parse_args()
    fill_topic(arguments.nameserver, arguments.events, arguments.rate)
    print(f"{arguments.events} events are in the topic {TOPIC}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
