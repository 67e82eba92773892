"""Writes the reference pages that come from the code: `make docs`. With --check it says whether they are current."""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from cyclopts import App

from millstream.broker import maintenance, registrar, report
from millstream.broker import settings as broker_settings
from millstream.broker.delivery import admission, delay
from millstream.broker.pop import lite_subscriptions, lite_topics
from millstream.broker.queues import groups, ledger, long_polling, queue_locks, reader, request_modes, topics
from millstream.broker.remoting import client_requests, inspection, locking, members, producers, pulling, replying
from millstream.broker.remoting import clients as remoting_clients
from millstream.broker.static_topics import logic_pops, peers
from millstream.cli.main import app
from millstream.cli.options import ExitCode
from millstream.client import known_routes
from millstream.client import logic_queues as client_logic_queues
from millstream.cluster import holders, key_values, nameserver
from millstream.cluster import remoting as nameserver_remoting
from millstream.controller import broker_calls, elections, liveness, replica_sets
from millstream.ingest import event_batch as ingest_parcel
from millstream.ingest import labels as ingest_labels
from millstream.ingest import rate_limited_log as ingest_complaints
from millstream.ingest import topic_writer as ingest_outlet
from millstream.ingest.files import input as ingest_files
from millstream.ingest.files import lines as ingest_lines
from millstream.ingest.files import positions as ingest_positions
from millstream.ingest.files import tail as ingest_tail
from millstream.ingest.files import watch as ingest_watch
from millstream.ingest.http import cloud_events as ingest_cloud_events
from millstream.ingest.http import input as ingest_http
from millstream.ingest.http import posts as ingest_posts
from millstream.ingest.syslog import connections as ingest_connections
from millstream.ingest.syslog import datagrams as ingest_datagrams
from millstream.ingest.syslog import framing as ingest_framing
from millstream.model import clock as machine_clock
from millstream.model import filter as filters
from millstream.model import group as group_settings
from millstream.model import lite
from millstream.model.catalogue import CATALOGUE
from millstream.protocol.remoting import frame
from millstream.protocol.remoting.administration import registration
from millstream.protocol.remoting.messages import batch_acks
from millstream.proxy import answers, clients, outbox, processor, pulls, renewal, throttle, tracer
from millstream.proxy import pending_commands as questions
from millstream.proxy.grpc import body, call, endpoints, namespace, request, transport
from millstream.proxy.grpc import read_limiter as intake
from millstream.proxy.grpc import tls_sniffing_proxy as front
from millstream.proxy.remote import access as remote_access
from millstream.proxy.remote import backend as remote_backend
from millstream.proxy.remote import connection_pool as lanes
from millstream.proxy.remote import forwarded_clients as told_clients
from millstream.proxy.remote import heartbeats as remote_heartbeats
from millstream.proxy.remote import popper as remote_popper
from millstream.proxy.remote import routes
from millstream.proxy.remote import sender as placement
from millstream.proxy.remote import sender as remote_sender
from millstream.proxy.remote import transactions as remote_transactions
from millstream.proxy.remoting import clients as proxied_clients
from millstream.proxy.remoting import consumption, queue_numbers
from millstream.proxy.remoting import half_messages as half_places
from millstream.security import audit, book, policy, user
from millstream.server import local_cluster, supervised
from millstream.server.configuration.reference import reference_page
from millstream.store import store_times
from millstream.streams.connectors.filesystem import lookup as looked_up_files
from millstream.streams.connectors.http import caller as http_caller
from millstream.streams.connectors.jdbc import lookup as looked_up_databases
from millstream.streams.connectors.jdbc import sink as database_output
from millstream.streams.connectors.registry import CONNECTORS
from millstream.streams.connectors.rocketmq import lookup as looked_up_topics
from millstream.streams.connectors.rules import guard as rule_guard
from millstream.streams.databases import batch_writer, database, mysql, postgresql, retry
from millstream.streams.dimension import builder as dimension_builder
from millstream.streams.dimension import column_facts, hit_counts, key_hash, pins, range_index, sorted_runs
from millstream.streams.dimension import versions as dimension_versions
from millstream.streams.functions.registry import AGGREGATES, FAMILIES, WINDOW_FUNCTIONS
from millstream.streams.functions.spec import FunctionSpec, Origin
from millstream.streams.functions.text import grok, user_agents
from millstream.streams.functions.unsupported import FLINK_ONLY
from millstream.streams.functions.user_functions import (
    calling,
    declarations,
    failed_calls,
    user_aggregates,
    user_values,
)
from millstream.streams.jobs import failed_calls as failed_call_letters
from millstream.streams.learning import half_space_trees
from millstream.streams.learning import pinned_model as kept_models
from millstream.streams.learning import store as model_store
from millstream.streams.operators import columns
from millstream.streams.operators.patterns import program, search
from millstream.streams.rule_formats import rule_files as rule_reading
from millstream.streams.rule_formats import yaml_document
from millstream.streams.rule_formats.sigma import conditions as sigma_conditions
from millstream.streams.rule_formats.sigma import correlations as rule_words
from millstream.streams.rule_formats.sigma import documents as sigma_documents
from millstream.streams.rule_formats.sigma import rule_reader as sigma_collection
from millstream.streams.rule_formats.yaml import conditions as yaml_conditions
from millstream.streams.rule_formats.yaml import statistics as yaml_statistics
from millstream.streams.rules import explain as why
from millstream.streams.rules import notes as rule_notes
from millstream.streams.rules import predicate_tests as rule_answers
from millstream.streams.rules import rule as rules
from millstream.streams.rules import store as rule_store
from millstream.streams.rules import watch as rule_watch
from millstream.streams.rules.engines import databases as kept_databases
from millstream.streams.rules.packed import packer
from millstream.streams.rules.packed import record as packed_record
from millstream.streams.rules.stage import stage as rule_stage
from millstream.streams.spark.lookups import dimension_stage, open_tables, reloads
from millstream.streams.spark.lookups import dimension_stage as probes
from millstream.streams.spark.operators import bucket_files, packing
from millstream.streams.spark.operators import stage as operator_stage
from millstream.streams.spark.rules import kept_versions
from millstream.streams.spark.rules import stages as rule_stages
from millstream.streams.spark.runtime import arrow_batches
from millstream.streams.spark.source.formats import schema_registry
from millstream.streams.spark.translation import operator_host
from millstream.streams.sql.options.settings import SETTINGS
from millstream.streams.state import version_store
from millstream.telemetry import descriptors
from millstream.telemetry.metrics import METRICS, NODE_LABELS
from millstream.transport import (
    connection_memory,
    descriptor_budget,
    half_frames,
    heavy_work,
    http_pages,
    late_answers,
    remoting_connection,
    remoting_server,
    strangers,
    unread_answers,
)
from millstream.transport import tls_sniffer as doorway

DOCS = Path(__file__).parent.parent / "docs"
_MARK = "<!-- Generated by tools/generate_docs.py from the code; `make docs` writes it anew. -->\n"


def _commands(group: App = app, name: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    """All commands with their full names, in the order in which `millstream --help` knows them."""
    for word in group:
        if word.startswith("-"):
            continue
        command, full = group[word], f"{name} {word}".strip()
        if command.default_command is None:
            yield from _commands(command, full)
        else:
            yield full, command.default_command


def errors_page() -> str:
    lines = ["# Errors\n", "Every error that a user can see has a number, and the number never changes its meaning.\n"]
    lines += ["| number | name | meaning | what to do |", "|---|---|---|---|"]
    lines += [
        f"| MS-{row.number} | {row.name} | {_cell(row.meaning)} | {_cell(row.remedy)} |" for row in CATALOGUE.values()
    ]
    return _page(lines)


def functions_page() -> str:
    lines = ["# SQL functions\n", _FUNCTIONS_WORDS]
    for title, family in FAMILIES.items():
        lines += [f"## {title}\n", "| function | what it gives | example | result |", "|---|---|---|---|"]
        lines += [_function_row(spec) for spec in sorted(family, key=lambda spec: spec.name)]
        lines.append("")
    for title, functions in (("Aggregates", AGGREGATES), ("Functions of OVER windows", WINDOW_FUNCTIONS)):
        lines += [f"## {title}\n", "| function | what it gives | example |", "|---|---|---|"]
        lines += [_aggregate_row(spec) for spec in sorted(functions.values(), key=lambda spec: spec.name)]
        lines.append("")
    lines += ["## What Flink has and Millstream has not\n", "| function | why |", "|---|---|"]
    lines += [f"| {name} | {_cell(reason)} |" for name, reason in sorted(FLINK_ONLY.items())]
    return _page(lines)


_FUNCTIONS_WORDS = """\
Semantics are Flink's. A value that cannot be computed is NULL and never ends a query. If a function is not Flink's, its
origin follows its name. CURRENT_DATE, CURRENT_TIME, CURRENT_TIMESTAMP, LOCALTIME and LOCALTIMESTAMP are written without
brackets. Functions of your own: [user-functions.md](user-functions.md).
"""


def configuration_page() -> str:
    return _page(["# Configuration of the roles\n", _CONFIGURATION_WORDS, *reference_page()])


_CONFIGURATION_WORDS = """\
`millstream start nameserver|controller|broker|proxy -c FILE` reads a file in TOML; `millstream config reference ROLE`
prints one with every setting at its default, and `millstream config check FILE` says whether a file can be used. An
unknown setting is refused, with the nearest known name. Precedence: option of the command line, `--set name=value`,
file, default. Secrets are in the environment: `MILLSTREAM_ACCESS_KEY`, `MILLSTREAM_SECRET_KEY`.
"""


def options_page() -> str:
    lines = ["# Tables and settings\n", "Options of `CREATE TABLE ... WITH (...)`, metadata columns and `SET`.\n"]
    for connector in CONNECTORS.values():
        uses = " and ".join(word for word, can in (("read", connector.reads), ("written", connector.writes)) if can)
        lines += [f"## Connector `{connector.name}`\n", f"Can be {uses}.\n"]
        if connector.options:
            lines += ["| option | meaning | default | values |", "|---|---|---|---|"]
        for option in connector.options:
            default = "required" if option.required else option.default or ""
            values = ", ".join(option.choices) or option.wanted
            lines.append(f"| `{option.name}` | {_cell(option.description)} | {_cell(default)} | {_cell(values)} |")
        if connector.metadata:
            keys = ", ".join(f"`{key}` `{data_type}`" for key, data_type in connector.metadata.items())
            lines += ["", f"Metadata columns (`name TYPE METADATA FROM 'key' VIRTUAL`): {keys}."]
        lines.append("")
    lines += ["## Settings\n", "| setting | meaning | default | values |", "|---|---|---|---|"]
    for setting in SETTINGS.values():
        lines.append(f"| `{setting.name}` | {setting.description} | {setting.default} | {_cell(setting.wanted)} |")
    return _page(lines)


def metrics_page() -> str:
    node = ", ".join(f"`{label}`" for label in NODE_LABELS)
    lines = [
        "# Metrics\n",
        "The metrics of the page `/metrics` ([observability](observability.md)).",
        f"Every metric has the labels {node} before its own.",
        "Histograms have `_bucket`, `_sum` and `_count`. A value that is not known is left out, never 0.\n",
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
    ]
    for metric in METRICS.values():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind.value} | {labels} | {_cell(metric.meaning)} |")
    return _page(lines)


LIMITS: tuple[tuple[str, tuple[ModuleType, ...]], ...] = (
    ("The gRPC port", (transport, front, intake, request, call, endpoints, namespace, body)),
    (
        "Clients and their deliveries",
        (clients, answers, processor, pulls, renewal, outbox, questions, tracer, throttle),
    ),
    ("Remoting clients at a proxy", (consumption, proxied_clients, half_places, told_clients, queue_numbers)),
    (
        "A proxy's brokers in other processes",
        (
            lanes,
            routes,
            placement,
            remote_sender,
            remote_popper,
            remote_backend,
            remote_heartbeats,
            remote_transactions,
            remote_access,
        ),
    ),
    ("The broker", (topics, groups, group_settings, ledger, long_polling, admission, delay, filters)),
    ("The machine's clock", (machine_clock, store_times, maintenance)),
    ("Lite topics", (lite, lite_topics, lite_subscriptions)),
    (
        "Several processes",
        (
            *(nameserver, holders, nameserver_remoting, registrar, registration, report),
            *(known_routes, supervised, local_cluster),
        ),
    ),
    ("Controllers", (replica_sets, liveness, elections, broker_calls)),
    (
        "The remoting ports",
        (
            *(
                remoting_server,
                remoting_connection,
                half_frames,
                unread_answers,
                late_answers,
                connection_memory,
                members,
                remoting_clients,
                producers,
                queue_locks,
                locking,
                client_requests,
            ),
            *(batch_acks, request_modes, replying, inspection, peers),
            *(frame, pulling),
        ),
    ),
    ("Queues that move between brokers", (logic_pops, client_logic_queues)),
    ("What tools keep and change", (key_values, broker_settings)),
    ("Connections before their first words, and the pages", (doorway, http_pages)),
    ("Work in threads", (heavy_work, reader)),
    ("Descriptors, and lines about strangers", (descriptors, descriptor_budget, strangers)),
    ("Users and policies", (user, book, policy, audit)),
    ("SQL functions", (grok, user_agents)),
    ("Users' functions", (declarations, calling, user_aggregates, user_values, failed_calls, failed_call_letters)),
    (
        "Ingestion",
        (
            *(ingest_outlet, ingest_parcel, ingest_labels, ingest_complaints),
            *(ingest_lines, ingest_tail, ingest_watch, ingest_positions, ingest_files),
            *(ingest_framing, ingest_datagrams, ingest_connections),
            *(ingest_posts, ingest_cloud_events, ingest_http),
        ),
    ),
    (
        "Operators of Spark jobs",
        (
            program,
            search,
            operator_host,
            packing,
            bucket_files,
            operator_stage,
            columns,
            arrow_batches,
            looked_up_files,
            looked_up_databases,
        ),
    ),
    ("Databases", (database, mysql, postgresql, retry, batch_writer, database_output)),
    ("Requests of connectors", (http_caller, schema_registry)),
    ("Stores of rules and models", (version_store,)),
    (
        "Dimension tables",
        (
            *(dimension_builder, sorted_runs, column_facts, key_hash, range_index),
            dimension_versions,
            pins,
            hit_counts,
            looked_up_topics,
            reloads,
            dimension_stage,
            probes,
            open_tables,
        ),
    ),
    (
        "Rules",
        (
            *(rules, rule_store, rule_notes, rule_reading, yaml_statistics, yaml_conditions, yaml_document),
            *(
                sigma_documents,
                sigma_collection,
                sigma_conditions,
                rule_words,
                why,
                kept_versions,
                rule_stages,
                rule_guard,
            ),
            *(rule_answers, rule_watch, rule_stage, kept_databases),
            *(packed_record, packer),
        ),
    ),
    ("Models and scores", (model_store, kept_models, half_space_trees)),
)
"""What the page of limits shows: the public numbers of these modules that have a docstring."""


def limits_page() -> str:
    lines = ["# Limits\n", _LIMITS_WORDS]
    for title, modules in LIMITS:
        lines += [f"## {title}\n", "| limit | value | what it bounds |", "|---|---|---|"]
        for module in modules:
            lines += [f"| {name} | {value:,} | {_cell(words)} |" for name, value, words in _numbers(module)]
        lines.append("")
    return _page(lines)


def _numbers(module: ModuleType) -> Iterator[tuple[str, int | float, str]]:
    """Each public number of a module with its docstring, in one line."""
    body = ast.parse(inspect.getsource(module)).body
    for place, following in pairwise(body):
        match place, following:
            case (
                ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ) if not name.startswith("_") and isinstance(getattr(module, name), (int, float)):
                yield name, getattr(module, name), " ".join(words.split())
            case _:
                pass


_LIMITS_WORDS = """\
A request over a limit is refused with TOO_MANY_REQUESTS or a code that names the limit; it never ends the server.
Names that end in S are seconds, MS milliseconds, BYTES bytes; the others are counts.

A server whose limits are all used up at one time holds, beside what it stores: 1 GiB of requests that are being read,
512 MiB of requests that are being answered, and 512 MiB for messages that are being delivered (up to 64 MiB more for
each that is unpacked); on all its remoting ports together 280 MiB of half-received requests and 240 MiB of unread
answers. A silent connection takes about 10 KiB, a receive that waits about 20 KiB. With access control, clients without
credentials have 40 MiB of this for half-received remoting requests, and the gRPC port reads none of their requests. One
thing has no limit of its own: what a telemetry stream of a user (of anybody, without access control) sends before its
command is complete, up to 16 MiB each.
"""


def cli_page() -> str:
    codes = ", ".join(f"{code.value} {code.name.lower().replace('_', ' ')}" for code in ExitCode)
    lines = [
        "# Command line\n",
        "Every command that talks to a server takes `--nameserver` (or `MILLSTREAM_NAMESERVER`), `--profile` (or",
        "`MILLSTREAM_PROFILE`), `-o table|json|plain` and `--timeout` seconds. Precedence: option, variable, profile,",
        "default (127.0.0.1:9876). With access control or TLS use `--access-key`, `--secret-key` and `--tls-ca`, or",
        "the variables that `--help` names ([security](security.md)). `MILLSTREAM_DEBUG=1` shows stack traces, and",
        "Spark's own lines about errors.\n",
        f"Exit codes: {codes}.\n",
    ]
    for name, command in _commands():
        lines += [f"## `millstream {name}`\n", *_command_lines(command), ""]
    return _page(lines)


def _command_lines(command: Callable[..., Any]) -> Iterator[str]:
    text = inspect.getdoc(command) or ""
    summary, _, parameters = text.partition("Parameters\n----------\n")
    yield summary.strip()
    told = dict(_told(parameters))
    hints = get_type_hints(command)
    rows = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name == "common":
            continue
        if is_dataclass(hints[parameter.name]):
            rows += _option_rows(hints[parameter.name])
            continue
        if _is_hidden(command, parameter.name):
            continue
        positional = parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        shown = parameter.name.upper() if positional else _option_name(command, parameter.name)
        default = parameter.default
        shown_default = (
            "" if default in (inspect.Parameter.empty, None, (), False) else getattr(default, "value", default)
        )
        rows.append(f"| `{shown}` | {_cell(told.get(parameter.name, ''))} | {shown_default} |")
        assert parameter.name in hints
    if rows:
        yield from ("", "| argument | meaning | default |", "|---|---|---|", *rows)


def _option_rows(options: type) -> Iterator[str]:
    """The options that several commands share, which are described in their class."""
    for field, hint in get_type_hints(options, include_extras=True).items():
        if any(getattr(extra, "show", None) is False for extra in hint.__metadata__):
            continue
        default = getattr(options, field)
        words = next(extra.help for extra in hint.__metadata__ if hasattr(extra, "help"))
        yield f"| `--{field.replace('_', '-')}` | {_cell(words)} | {'' if default is None else default} |"


def _is_hidden(command: Callable[..., Any], name: str) -> bool:
    hint = get_type_hints(command, include_extras=True)[name]
    return any(getattr(extra, "show", None) is False for extra in getattr(hint, "__metadata__", ()))


def _option_name(command: Callable[..., Any], name: str) -> str:
    hint = get_type_hints(command, include_extras=True)[name]
    for extra in getattr(hint, "__metadata__", ()):
        names = getattr(extra, "name", None)
        if names:
            return ", ".join([names] if isinstance(names, str) else names)
    return "--" + name.replace("_", "-")


def _told(parameters: str) -> Iterator[tuple[str, str]]:
    name, words = "", []
    for line in [*parameters.splitlines(), "end"]:
        if line and not line.startswith(" "):
            if name:
                yield name, " ".join(words)
            name, words = line.strip(), []
        else:
            words.append(line.strip())


def _function_row(spec: FunctionSpec) -> str:
    result = f"`{_cell(spec.result_shown)}`" if spec.result_shown else ""
    return f"{_aggregate_row(spec)} {result} |"


def _aggregate_row(spec: FunctionSpec) -> str:
    origin = "" if spec.origin is Origin.FLINK else f" ({spec.origin.value})"
    return f"| `{_cell(spec.usage)}`{origin} | {_cell(spec.description)} | `{_cell(spec.example)}` |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _page(lines: list[str]) -> str:
    return _MARK + "\n".join(lines).rstrip() + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "configuration.md": configuration_page,
    "errors.md": errors_page,
    "functions.md": functions_page,
    "limits.md": limits_page,
    "metrics.md": metrics_page,
    "sql-options.md": options_page,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the generated reference pages.")
    parser.add_argument("--check", action="store_true", help="only say whether they are current")
    check = parser.parse_args().check
    stale = [name for name, page in PAGES.items() if not _is_current(DOCS / name, page())]
    for name in stale:
        if not check:
            (DOCS / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"{'stale' if check else 'written'}: docs/{name}")
    return 1 if check and stale else 0


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
