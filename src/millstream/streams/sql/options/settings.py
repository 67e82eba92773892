"""The settings of SET, with their validation and defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from millstream.streams.connectors.options import DURATION
from millstream.streams.functions.calendar import zone_of
from millstream.streams.optimizer.local_time_zones import is_utc
from millstream.streams.sql.syntax.script import did_you_mean

__all__ = ["IGNORED_SETTINGS", "SETTINGS", "SETTING_ALIASES", "Setting", "SettingProblem", "check_setting"]

_MICRO_BATCHES = "rows always come and go in micro-batches"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting; `pattern` (upper and lower case alike) is what a value looks like, `wanted` the same in words.

    `note` is said when it is set, or when it is set to `noted`: what it does not do here.
    """

    name: str
    default: str
    pattern: str
    wanted: str
    description: str
    note: str = ""
    noted: str = ""


class SettingProblem(ValueError):
    """A setting that is not known or a value that it cannot have."""

    def __init__(self, name: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.name, self.message, self.remedy = name, message, remedy


def _flag(name: str, default: str, description: str, note: str = "") -> Setting:
    return Setting(name, default, "true|false", "true or false", description, note)


def _duration(name: str, default: str, description: str, note: str = "") -> Setting:
    return Setting(name, default, DURATION, "a duration such as '5 s'", description, note)


def _count(name: str, default: str, wanted: str, description: str, note: str = "") -> Setting:
    return Setting(name, default, r"[1-9]\d{0,9}", wanted, description, note)


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("execution.runtime-mode", "streaming", "streaming|batch", "streaming or batch", "How a job runs."),
        Setting("execution.state-recovery.path", "", r"\S.{0,4000}", "a directory", "Savepoint from which a job without a checkpoint begins."),
        _flag("execution.state-recovery.ignore-unclaimed-state", "false", "Whether a job whose query has changed may drop state that none of its operators takes over."),
        _duration("execution.checkpointing.interval", "0 s", "Time between micro-batches."),
        _count("millstream.max-rows-per-trigger", "200000", "a number of rows", "About how many rows a micro-batch reads."),
        Setting("millstream.nameserver", "", r"[^\s:;]+:\d{1,5}(;[^\s:;]+:\d{1,5})*", "host:port", "Nameserver of the tables."),
        _flag("millstream.bounded.close-windows", "true", "Whether a bounded job emits at its end what waits for the watermark, such as open windows. With false that stays open for the next run on the same checkpoint; results that come at the end alone, as of an ORDER BY without a time, are never emitted."),
        _duration("millstream.start-timeout", "30 s", "How long a job that is started waits for nameservers and brokers that do not answer; then it fails with START_TIMED_OUT. 0: it is refused at once."),
        _flag("millstream.wait-for-topics", "false", "Whether a job starts before its topics are there, and reads them once they are."),
        _count("parallelism.default", "", "a number of tasks", "Tasks of each operator of a job; default: as many as the session has cores. It may change from one start to the next."),
        Setting("pipeline.max-parallelism", "", r"[1-9]\d{0,3}|[12]\d{4}|3[01]\d{3}|32[0-6]\d\d|327[0-5]\d|3276[0-8]", "a number from 1 to 32768", "Key groups of each operator of a new job, so tasks at most; default: 128. A job keeps the number for life."),
        Setting("pipeline.name", "", ".{1,100}", "a name of 1 to 100 characters", "Name of the next jobs."),
        _count("sql-client.execution.max-table-result.rows", "1000000", "a number of rows", "Rows that a shell keeps of a result."),
        Setting("restart-strategy.type", "exponential-delay", "none|exponential-delay", "none or exponential-delay", "Whether a job goes on after errors that pass: a broker or a database that does not answer, a topic that is not there."),
        _duration("restart-strategy.exponential-delay.initial-backoff", "1 s", "How long it waits at first; then twice as long each time. Chance takes off up to a fifth, so that jobs that failed together do not start together."),
        _duration("restart-strategy.exponential-delay.max-backoff", "1 min", "How long it waits at most."),
        _count("restart-strategy.exponential-delay.attempts", "", "a number of times", "How often without a micro-batch between; default: 5 in bounded jobs, else without end."),
        Setting("sql-client.execution.result-mode", "table", "table|changelog|tableau", "table, changelog or tableau", "How a shell shows results."),
        Setting("execution.checkpointing.dir", "", r"\S{1,1000}", "an absolute path or an address such as s3://bucket/prefix", "Where operators keep their state, and where the rest of the job's checkpoint is copied: a directory, or s3://, gs://, hdfs:// as pyarrow reads them (s3://bucket/prefix?endpoint_override=HOST%3APORT&scheme=http). Default: the job's checkpoint directory. Keys of access come from the environment."),
        Setting("state.checkpoints.dir", "", r"\S{1,1000}", "an absolute path or an address such as s3://bucket/prefix", "The same by its name in earlier versions of Flink."),
        Setting("state.mirror", "none", "none|topic", "none or topic", "Whether the job's checkpoint is copied to a compacted topic, from which the job goes on on another machine."),
        Setting("state.mirror.topic", "", r"[%|a-zA-Z0-9_-]{1,127}", "the name of a topic", "The topic; default: millstream-state-JOB. It is made if it is not there."),
        _flag("state.mirror.wait", "true", "Whether each micro-batch waits for the copy before it writes to sinks, so that a job that goes on from the copy writes no row twice. With false the copy may be behind, and rows since then come again."),
        _flag("table.dml-sync", "false", "Whether a shell waits until an INSERT ends."),
        _flag("table.exec.emit.early-fire.enabled", "false", "Whether windows emit results before their end."),
        _duration("table.exec.emit.early-fire.delay", "0 ms", "How often they do; 0 at every change."),
        _flag("table.exec.emit.late-fire.enabled", "false", "Whether windows emit results again for late rows."),
        _duration("table.exec.emit.late-fire.delay", "0 ms", "How often they do; 0 at every change."),
        _duration("table.exec.emit.allow-lateness", "0 ms", "How long after its end a window accepts late rows."),
        Setting("table.exec.legacy-cast-behaviour", "disabled", "enabled|disabled", "enabled or disabled", "Whether bad CASTs give NULL.",
                "millstream.bad-cast says what becomes of a CAST that fails; NULL unless that is set"),
        Setting("millstream.bad-cast", "null", "null|dead-letter|fail", "null, dead-letter or fail", "What a CAST that fails does: it gives NULL, sends its row to the dead-letter topic, or ends the job."),
        Setting("millstream.null-event-time", "count", "count|fail", "count or fail", "What becomes of a row whose event time (the column of WATERMARK) is NULL, and which is in no window: it is counted as without event time, or ends the job as in Flink."),
        Setting("millstream.user-function.on-error", "dead-letter", "null|dead-letter|fail", "null, dead-letter or fail", "What a call of a user function that raises does: it gives NULL, sends its row to the dead-letter topic (NULL if the row comes from no topic), or ends the job."),
        _duration("millstream.user-function.timeout", "60 s", "How long one call of a user function may take if its declaration does not say; 0 for any time."),
        Setting("millstream.rules.stage", "auto", "auto|always|never", "auto, always or never", "Whether a source evaluates the conditions of filters, all together: if that costs less, whenever it can, or never."),
        Setting("millstream.task-type", "resource-sensitive", "resource-sensitive|error-sensitive", "resource-sensitive or error-sensitive", "Whether a job without state shares one query with others that are started with it and read the same table, or runs alone."),
        _flag("table.exec.mini-batch.enabled", "false", "Whether changes are combined.", _MICRO_BATCHES),
        _duration("table.exec.mini-batch.allow-latency", "0 ms", "How long changes may wait.", _MICRO_BATCHES),
        _count("table.exec.mini-batch.size", "", "a number of rows", "How many changes may wait.", _MICRO_BATCHES),
        Setting("table.exec.sink.not-null-enforcer", "error", "error|drop", "error or drop", "Rows with NULL for a NOT NULL column of a sink: drop leaves them out; error writes them all the same, as no row ends a job.",
                "such rows are written all the same, as no row ends a job; drop leaves them out", "error"),
        Setting("table.exec.sink.type-length-enforcer", "ignore", "ignore|trim_pad", "ignore or trim_pad; a text that is too long cannot end a job, as error would have it", "Texts and bytes whose type says that they have the length of a sink's column: ignore believes it, trim_pad cuts and fills them. Others are always cut and filled."),
        Setting("table.exec.sink.upsert-materialize", "auto", "auto|none|force", "auto, none or force", "Whether a sink keeps all rows of its primary key, so that another one counts when the last is retracted: if rows of several keys may fall on it, never, or whenever rows change."),
        Setting("table.exec.sink.nested-constraint-enforcer", "ignore", "ignore", "ignore: NOT NULL and lengths inside of rows, arrays and maps are not checked", "What is checked inside rows, arrays and maps."),
        _duration("table.exec.source.idle-timeout", "0 ms", "How long a queue may be silent until event time goes on without it; 0 for ever."),
        _duration("table.exec.state.ttl", "0 ms", "How long state without changes is kept; 0 for ever."),
        Setting("table.sql-dialect", "default", "default", "default", "The SQL dialect of scripts.", "Flink's own dialect is the only one"),
        Setting("table.local-time-zone", "UTC", ".{1,60}", "the name of a zone, as Europe/Berlin, or as GMT+08:00", "Zone in which TIMESTAMP_LTZ is read as a date, a clock or a text; windows stay aligned to UTC."),
    )
}  # fmt: skip
"""All settings by name."""

SETTING_ALIASES: dict[str, str] = {
    "execution.savepoint.path": "execution.state-recovery.path",
    "execution.savepoint.ignore-unclaimed-state": "execution.state-recovery.ignore-unclaimed-state",
}
"""Settings under the names that they had before Flink 2."""

IGNORED_SETTINGS: dict[str, str] = {
    "table.optimizer.": "the plan has no such choice",
    "table.exec.async-": "lookups are always asked together for a micro-batch",
    "table.exec.deduplicate.": _MICRO_BATCHES,
    "table.exec.disabled-operators": "the plan has no such choice",
    "table.exec.delta-join.": "the plan has no such choice",
    "table.exec.interval-join.": "rows leave the state when the watermark passes their bound",
    "table.exec.local-hash-agg.": "Spark plans the tasks",
    "table.exec.mini-batch.": _MICRO_BATCHES,
    "table.exec.operator-fusion-codegen.": "Spark compiles what it runs",
    "table.exec.rank.": "each task keeps the rows of its keys in memory",
    "table.exec.simplify-operator-name-enabled": "operators are named by their order",
    "table.exec.uid.": "operators are known by what they keep, as EXPLAIN shows",
    "table.exec.unbounded-over.": "there is one kind of them",
    "table.exec.window-agg.": "each task keeps the rows of its keys in memory",
    "table.generated-code.": "Spark compiles what it runs",
    "table.exec.resource.default-parallelism": "parallelism.default says how many tasks an operator has",
    "table.exec.sink.": "each sink gets its rows by key already",
    "table.exec.spill-": "Spark decides what lies on disk",
    "table.plan.": "plans are not compiled",
    "state.": "state lies beside the checkpoint",
    "execution.checkpointing.": "every micro-batch is a checkpoint",
    "execution.savepoint.": "savepoints are read by execution.state-recovery.path",
    "execution.state-recovery.": "a savepoint stays as it is; its files are copied",
    "restart-strategy": "a job waits as 'restart-strategy.exponential-delay' says",
    "pipeline.": "Spark plans the tasks",
    "taskmanager.": "Spark's session has the memory",
    "jobmanager.": "Spark's session has the memory",
    "rest.": "there is no Flink cluster",
    "sql-client.": "the shell has no such choice",
}
"""What Flink's settings begin with that do nothing here, and why. Known ones go first."""


def check_setting(name: str, value: str) -> str:
    """What is to be said about the setting, blank for nothing. Raises SettingProblem unless it can have the value."""
    setting = SETTINGS.get(name)
    if setting is None:
        reason = next((reason for prefix, reason in IGNORED_SETTINGS.items() if name.startswith(prefix)), None)
        hint = did_you_mean(name, list(SETTINGS))
        if reason is None or _is_misspelled(name):
            message = f"There is no setting '{name}'."
            raise SettingProblem("SQL_OPTION", message, hint or f"Settings: {', '.join(SETTINGS)}.")
        return f"It does nothing: {reason}."
    if not re.fullmatch(setting.pattern, value, re.IGNORECASE) or (
        name == "table.local-time-zone" and not is_utc(value) and zone_of(value) is None
    ):
        raise SettingProblem("SQL_OPTION", f"'{name}' cannot be '{value}'.", f"It is {setting.wanted}.")
    is_noted = setting.note and setting.noted in ("", value.lower())
    return f"It does nothing: {setting.note}." if is_noted else ""


def _is_misspelled(name: str) -> bool:
    """Whether a name is so near to a setting's that it cannot be meant to do nothing."""
    return bool(get_close_matches(name, list(SETTINGS), 1, 0.95))
