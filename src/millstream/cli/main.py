"""The entry point of the command: registers commands, turns errors into messages and exit codes, explains errors."""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

from cyclopts import App, CycloptsError

from millstream import __version__
from millstream.cli.gc_tuning import relax_gc, restore_gc
from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import Printer, WarningLines, print_error
from millstream.model.catalogue import CATALOGUE, find_entry
from millstream.model.errors import ExtraMissing, MillstreamError

__all__ = ["EXTRA_OF", "app", "explain", "extra_missing", "list_errors", "main", "run"]


EXTRA_OF: Final = {
    "pyspark": "streams",
    "py4j": "streams",
    "pyarrow": "streams",
    "pandas": "streams",
    "numpy": "streams",
    "hyperscan": "streams",
    "yaml": "streams",
    "urllib3": "streams",
    "sigma": "sigma",
    "pymysql": "databases",
    "psycopg": "databases",
    "fastavro": "formats",
    "sklearn": "learning",
    "onnxruntime": "learning",
}
"""Modules of packages that the core does without, with the extra of pyproject.toml that brings each."""


def extra_missing(error: ModuleNotFoundError) -> ExtraMissing | None:
    """The refusal for a module that an extra brings; None for any other one."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(module)
    return None if extra is None else ExtraMissing("This command", module, extra=extra)


def explain(number: str, *, common: CommonOptions = CommonOptions()) -> int:
    """Say what an error means and what to do.

    Parameters
    ----------
    number
        The number as printed, with or without MS-.
    """
    digits = number.upper().removeprefix("MS-")
    entry = find_entry(int(digits)) if digits.isdecimal() else None
    if entry is None:
        print(f"error: there is no error {number}; millstream error list shows all.", file=sys.stderr)
        return ExitCode.REFUSED
    Printer(common.output).record(
        {"number": f"MS-{entry.number}", "name": entry.name, "meaning": entry.meaning, "remedy": entry.remedy},
        sentence=f"MS-{entry.number} {entry.name}\n{entry.meaning}\n{entry.remedy}",
    )
    return ExitCode.DONE


def list_errors(*, common: CommonOptions = CommonOptions()) -> int:
    """List all errors by number."""
    rows = [(f"MS-{entry.number}", entry.name, entry.meaning, entry.remedy) for entry in CATALOGUE.values()]
    Printer(common.output).listing(("number", "name", "meaning", "remedy"), rows, empty="There are no errors.")
    return ExitCode.DONE


app = App(
    name="millstream",
    help="Messages and streams: a RocketMQ-5-compatible broker and Flink SQL on Spark.",
    version=__version__,
    # Other formats take the asterisks and underscores of an example for marks of their own.
    help_format="plaintext",
    result_action="return_value",
)
topic = App(name="topic", help="Create, list, describe, change and delete topics.", result_action="return_value")
group = App(
    name="group",
    help="Create, change, list and delete consumer groups; their lag and resets.",
    result_action="return_value",
)
dlq = App(name="dlq", help="List dead letters and send them again.", result_action="return_value")
message = App(
    name="message", help="Look messages up, send them again, take delayed ones back.", result_action="return_value"
)
acl = App(name="acl", help="Who may do what, where access control is on.", result_action="return_value")
acl_user = App(name="user", help="Create, list, change and delete users.", result_action="return_value")
bench = App(
    name="bench",
    help="Measure how fast a server takes and gives messages, and how long they are under way.",
    result_action="return_value",
)
store = App(name="store", help="The data directory of a server that does not run.", result_action="return_value")
tiered = App(name="tiered", help="Messages in an object store.", result_action="return_value")
start = App(name="start", help="Run one role in a process of its own.", result_action="return_value")
config = App(name="config", help="The settings of the roles.", result_action="return_value")
broker = App(name="broker", help="List, describe, drain and hand over brokers.", result_action="return_value")
broker_config = App(name="config", help="A broker's settings by RocketMQ's names.", result_action="return_value")
cluster = App(name="cluster", help="Which servers there are.", result_action="return_value")
rules = App(
    name="rules",
    help="Rules over streams of events: bring them in, try them, switch them on and off.",
    result_action="return_value",
)
model = App(
    name="model",
    help="Models that jobs apply: publish, send, list, roll back and remove them.",
    result_action="return_value",
)
ingest = App(
    name="ingest",
    help="Files, syslog and HTTP posts become messages of a topic.",
    result_action="return_value",
)
dim = App(
    name="dim",
    help="Dimension tables, which jobs look rows up in: what is loaded, how large, how often it is found.",
    result_action="return_value",
)
job = App(
    name="job",
    help="Run jobs here, or hand them to a job server and look after them there.",
    result_action="return_value",
)
profile = App(name="profile", help="Names for clusters, with addresses and keys.", result_action="return_value")
error = App(name="error", help="Look up errors by number.", result_action="return_value")

app.command("millstream.cli.servers.quickstart:quickstart", name="quickstart")
app.command(start)
app.command(config)
app.command(store)
app.command(tiered)
app.command("millstream.cli.servers.cluster:status", name="status")
app.command(cluster)
app.command(broker)
app.command("millstream.cli.servers.doctor:doctor", name="doctor")
app.command(profile)
app.command(topic)
app.command(group)
app.command(dlq)
app.command(message)
app.command("millstream.cli.messages.produce:produce", name="produce")
app.command("millstream.cli.messages.consume:consume", name="consume")
app.command("millstream.cli.streams.sql:sql", name="sql")
app.command(job)
app.command(rules)
app.command(model)
app.command(ingest)
app.command(dim)
app.command(acl)
app.command(bench)
app.command(error)
start.command("millstream.cli.servers.start:nameserver", name="nameserver")
start.command("millstream.cli.servers.start:controller", name="controller")
start.command("millstream.cli.servers.start:broker", name="broker")
start.command("millstream.cli.servers.start:proxy", name="proxy")
start.command("millstream.cli.servers.start:jobs", name="jobs")
start.command("millstream.cli.servers.start:sql_gateway", name="sql-gateway")
start.command("millstream.cli.servers.start_cluster:cluster", name="cluster")
start.command("millstream.cli.servers.start_spark:spark_master", name="spark-master")
start.command("millstream.cli.servers.start_spark:spark_worker", name="spark-worker")
store.command("millstream.cli.servers.store:repair", name="repair")
tiered.command("millstream.cli.servers.tiered:status", name="status")
tiered.command("millstream.cli.servers.tiered:verify", name="verify")
tiered.command("millstream.cli.servers.tiered:gc", name="gc")
config.command("millstream.cli.servers.config:reference", name="reference")
config.command("millstream.cli.servers.config:check", name="check")
profile.command("millstream.cli.profile:put", name="set")
profile.command("millstream.cli.profile:list_profiles", name="list")
profile.command("millstream.cli.profile:use", name="use")
profile.command("millstream.cli.profile:delete", name="delete")
cluster.command("millstream.cli.servers.cluster:topology", name="topology")
broker.command(broker_config)
broker_config.command("millstream.cli.servers.broker_config:get", name="get")
broker_config.command("millstream.cli.servers.broker_config:put", name="set")
broker.command("millstream.cli.servers.broker:list_brokers", name="list")
broker.command("millstream.cli.servers.broker:describe", name="describe")
broker.command("millstream.cli.servers.broker:equip", name="equip")
broker.command("millstream.cli.servers.broker:restore", name="restore")
broker.command("millstream.cli.servers.broker:drain", name="drain")
broker.command("millstream.cli.servers.handover:handover", name="handover")
broker.command("millstream.cli.servers.broker:undrain", name="undrain")
topic.command("millstream.cli.messages.topic:create", name="create")
topic.command("millstream.cli.messages.topic:list_topics", name="list")
topic.command("millstream.cli.messages.topic:describe", name="describe")
topic.command("millstream.cli.messages.topic:delete", name="delete")
topic.command("millstream.cli.messages.topic:update", name="update")
topic.command("millstream.cli.messages.topic:remap", name="remap")
message.command("millstream.cli.messages.message:find", name="find")
message.command("millstream.cli.messages.message:trace", name="trace")
message.command("millstream.cli.messages.message:get", name="get")
message.command("millstream.cli.messages.message:resend", name="resend")
message.command("millstream.cli.messages.message:recall", name="recall")
group.command("millstream.cli.messages.group:create", name="create")
group.command("millstream.cli.messages.group:list_groups", name="list")
group.command("millstream.cli.messages.group:delete", name="delete")
group.command("millstream.cli.messages.group:update", name="update")
group.command("millstream.cli.messages.group:describe", name="describe")
group.command("millstream.cli.messages.group:lag", name="lag")
group.command("millstream.cli.messages.group:reset", name="reset")
dlq.command("millstream.cli.messages.dead_letter:list_dead_letters", name="list")
dlq.command("millstream.cli.messages.dead_letter:redrive", name="redrive")
job.command("millstream.cli.streams.job:run", name="run")
job.command("millstream.cli.streams.submitted_job:submit", name="submit")
job.command("millstream.cli.streams.submitted_job:list_jobs", name="list")
job.command("millstream.cli.streams.submitted_job:describe", name="describe")
job.command("millstream.cli.streams.submitted_job:logs", name="logs")
job.command("millstream.cli.streams.submitted_job:pause", name="pause")
job.command("millstream.cli.streams.submitted_job:resume", name="resume")
job.command("millstream.cli.streams.submitted_job:update", name="update")
job.command("millstream.cli.streams.submitted_job:cancel", name="cancel")
job.command("millstream.cli.streams.savepoint:savepoint", name="savepoint")
rules.command("millstream.cli.rules.store:import_rules", name="import")
rules.command("millstream.cli.rules.view:list_rules", name="list")
rules.command("millstream.cli.rules.view:show", name="show")
rules.command("millstream.cli.rules.trial:try_rules", name="test")
rules.command("millstream.cli.rules.trial:why", name="why")
rules.command("millstream.cli.rules.store:enable", name="enable")
rules.command("millstream.cli.rules.store:disable", name="disable")
rules.command("millstream.cli.rules.store:remove", name="remove")
rules.command("millstream.cli.rules.view:stats", name="stats")
rules.command("millstream.cli.rules.view:explain", name="explain")
rules.command("millstream.cli.rules.view:versions", name="versions")
rules.command("millstream.cli.rules.store:rollback", name="rollback")
rules.command("millstream.cli.rules.store:forget", name="forget")
rules.command("millstream.cli.rules.run:run", name="run")
model.command("millstream.cli.streams.model:publish", name="publish")
model.command("millstream.cli.streams.model:send", name="send")
model.command("millstream.cli.streams.model:list_models", name="list")
model.command("millstream.cli.streams.model:rollback", name="rollback")
model.command("millstream.cli.streams.model:remove", name="remove")
ingest.command("millstream.cli.ingest.inputs:ingest_file", name="file")
ingest.command("millstream.cli.ingest.inputs:ingest_syslog", name="syslog")
ingest.command("millstream.cli.ingest.inputs:ingest_http", name="http")
ingest.command("millstream.cli.ingest.run:ingest_run", name="run")
dim.command("millstream.cli.streams.dim:list_tables", name="list")
dim.command("millstream.cli.streams.dim:describe", name="describe")
dim.command("millstream.cli.streams.dim:reload", name="reload")
dim.command("millstream.cli.streams.dim:drop", name="drop")
acl.command(acl_user)
acl.command("millstream.cli.acl:grant", name="grant")
acl.command("millstream.cli.acl:revoke", name="revoke")
acl.command("millstream.cli.acl:list_entries", name="list")
acl.command("millstream.cli.acl:ask", name="test")
acl_user.command("millstream.cli.acl:create", name="create")
acl_user.command("millstream.cli.acl:list_users", name="list")
acl_user.command("millstream.cli.acl:update", name="update")
acl_user.command("millstream.cli.acl:delete", name="delete")
bench.command("millstream.cli.bench.command:produce", name="produce")
bench.command("millstream.cli.bench.command:consume", name="consume")
bench.command("millstream.cli.bench.command:e2e", name="e2e")
error.command("millstream.cli.main:explain", name="explain")
error.command("millstream.cli.main:list_errors", name="list")

_GROUPS = frozenset(
    "topic group dlq message rules model ingest dim job acl user error start store tiered config broker cluster "
    "profile".split()
)
"""Words that list their commands where nothing follows them."""

_SERVERS = (["quickstart"], ["start"], ["ingest"])
"""First words of the commands that run until they are stopped."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the answer is its exit code. `MILLSTREAM_DEBUG=1` shows stack traces."""
    debug = os.environ.get("MILLSTREAM_DEBUG") == "1"
    words = sys.argv[1:] if arguments is None else arguments
    if debug or words[:1] in _SERVERS:
        level = logging.DEBUG if debug else logging.WARNING
        logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    else:
        logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[WarningLines()])
    try:
        if not words or {"-h", "--help"} & {*words} or words[-1] in _GROUPS:
            _load(app)
        result = app(words, exit_on_error=False)
    except CycloptsError:
        return ExitCode.USAGE
    except MillstreamError as refused:
        if debug:
            raise
        print_error(refused)
        return refused.exit_code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except Exception as unexpected:  # the edge: nothing above prints for the user
        if debug:
            raise
        missing = extra_missing(unexpected) if isinstance(unexpected, ModuleNotFoundError) else None
        internal = MillstreamError("INTERNAL_ERROR", f"{type(unexpected).__name__}: {unexpected}.")
        print_error(missing or internal)
        return ExitCode.REFUSED
    return int(result) if isinstance(result, int) else ExitCode.DONE


def _load(group: App) -> None:
    """Import the commands, which else waits until one is called: a list of them shows what each does."""
    for word in group:
        if not word.startswith("-"):
            _load(group[word])


def run() -> None:
    """The console script."""
    if sys.argv[1:2] in _SERVERS:
        relax_gc()
    else:
        restore_gc()
    sys.exit(main())
