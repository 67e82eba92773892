"""Runs all measurements and writes their results: `python -m benchmarks [--input events.jsonl.zst] [--only NAME]`."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.amqp_load import measure_amqp
from benchmarks.broadcast import measure_broadcast
from benchmarks.brokers import measure_brokers
from benchmarks.bulk import measure_bulk
from benchmarks.chains import measure_chains
from benchmarks.compiled import measure_compiled
from benchmarks.detections import measure_detections
from benchmarks.dimension import measure_dimension
from benchmarks.executors import measure_executors
from benchmarks.gateway_rows import measure_gateway_rows
from benchmarks.grpc import measure_backlog, measure_calls, measure_idle_consumers, measure_share
from benchmarks.grpc_reference import measure_grpc_reference
from benchmarks.http_posts import measure_http
from benchmarks.http_streams import measure_http_streams
from benchmarks.ingest import measure_ingest
from benchmarks.iot import measure_iot
from benchmarks.large_cluster.measure import measure_large_cluster
from benchmarks.latency import measure_latency
from benchmarks.lookups import measure_lookups
from benchmarks.merged import measure_merged
from benchmarks.mqtt import measure_mqtt
from benchmarks.mqtt_reconnects import measure_mqtt_reconnects
from benchmarks.mqtt_restart import measure_mqtt_restart
from benchmarks.mqtt_sessions import measure_mqtt_sessions
from benchmarks.nexmark.measure import measure_nexmark
from benchmarks.operator_jobs import measure_operator_jobs
from benchmarks.operators import measure_operators
from benchmarks.parted import measure_parted
from benchmarks.proxies import measure_proxies
from benchmarks.proxy_hop import measure_proxy_hop
from benchmarks.remoting import measure_reference, measure_remoting
from benchmarks.replicas import measure_replicas
from benchmarks.restore import measure_restore, measure_turns
from benchmarks.rules import measure_rules
from benchmarks.sdk import measure_sdk
from benchmarks.send import measure_send
from benchmarks.sql import measure_first_result, measure_job
from benchmarks.start import measure_start
from benchmarks.state import measure_expiry, measure_state
from benchmarks.state_batches import measure_state_batches
from benchmarks.store import measure_appends, measure_restart, measure_sync_flush, measure_topics
from benchmarks.submitted_jobs import measure_submitted_jobs
from benchmarks.switched import measure_switch
from benchmarks.tiered import measure_tiered
from benchmarks.unused_ports import measure_unused_ports
from benchmarks.user_functions import measure_user_functions

_HERE = Path(__file__).parent
_DEMO = _HERE.parent / "examples" / "security" / "demo.py"


def measure_demo(source: Path | None) -> dict[str, object]:
    """The demo's own summary."""
    command = [sys.executable, str(_DEMO), *(["--input", str(source)] if source else [])]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    summary: dict[str, object] = json.loads(said.stdout.splitlines()[-1])
    summary["peak_by_process"] = [line.strip() for line in said.stdout.splitlines() if "peak memory" in line]
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the product on this machine.")
    parser.add_argument("--input", type=Path, help="events as JSON lines (.jsonl or .jsonl.zst) for sql and demo")
    parser.add_argument("--only", action="append", help="names of measurements, by commas; see benchmarks/README.md")
    arguments = parser.parse_args()
    only = [name for names in arguments.only or () for name in names.split(",")]
    sys.path.insert(0, str(_DEMO.parent))
    from demo import SYNTHETIC_EVENTS, choose_events

    measurements: dict[str, Callable[[], dict[str, object]]] = {
        "start": measure_start,
        "append": measure_appends,
        "sync-flush": measure_sync_flush,
        "restart": measure_restart,
        "topics": measure_topics,
        "send": measure_send,
        "remoting": measure_remoting,
        "reference": measure_reference,
        "amqp": measure_amqp,
        "grpc-reference": measure_grpc_reference,
        "bulk": measure_bulk,
        "http": measure_http,
        "http-streams": measure_http_streams,
        "ingest": measure_ingest,
        "unused-ports": measure_unused_ports,
        "mqtt": measure_mqtt,
        "mqtt-restart": lambda: {
            "nothing waits": measure_mqtt_restart(),
            "a message waits in each": measure_mqtt_restart(waiting=True),
        },
        "mqtt-reconnects": measure_mqtt_reconnects,
        "mqtt-sessions": lambda: {
            "lasting": measure_mqtt_sessions(),
            "clean": measure_mqtt_sessions(clean=True),
        },
        "calls": measure_calls,
        "compiled": measure_compiled,
        "share": measure_share,
        "hop": measure_proxy_hop,
        "brokers": measure_brokers,
        "proxies": measure_proxies,
        "replicas": measure_replicas,
        "large-cluster": measure_large_cluster,
        "idle": measure_idle_consumers,
        "backlog": measure_backlog,
        "sql": lambda: measure_job(choose_events(arguments.input, SYNTHETIC_EVENTS)),
        "detections": lambda: measure_detections(choose_events(arguments.input, SYNTHETIC_EVENTS)),
        "nexmark": measure_nexmark,
        "sdk": measure_sdk,
        "operators": lambda: {"bare": measure_operators(), "jobs": measure_operator_jobs()},
        "state": measure_state,
        "expiry": measure_expiry,
        "restore": lambda: {"restore": measure_restore(), "turns": measure_turns()},
        "state-batches": measure_state_batches,
        "user_functions": measure_user_functions,
        "rules": measure_rules,
        "chains": measure_chains,
        "merged": measure_merged,
        "submitted-jobs": measure_submitted_jobs,
        "executors": measure_executors,
        "parted": measure_parted,
        "lookups": measure_lookups,
        "dimension": measure_dimension,
        "broadcast": measure_broadcast,
        "switch": measure_switch,
        "tiered": measure_tiered,
        "first-result": measure_first_result,
        "gateway-rows": measure_gateway_rows,
        "latency": measure_latency,
        "iot": measure_iot,
        "demo": lambda: measure_demo(arguments.input),
    }
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    results: dict[str, object] = {
        "date": today,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "input": arguments.input.name if arguments.input else "synthetic",
    }
    for name, measure in measurements.items():
        if not only or name in only:
            print(f"{name} ...", flush=True)
            results[name] = measure()
            print(json.dumps(results[name], indent=2), flush=True)
    target = _HERE / "results" / f"{today}-{os.cpu_count()}cores{'-' + '-'.join(only) if only else ''}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {target.relative_to(_HERE.parent)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
