"""A script as a security team writes it: one source, detections and a count per host in one statement set."""

from __future__ import annotations

import pytest

from millstream.streams.plan.nodes import JobPlan
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.shell.explain import explain_sink

SCRIPT = r"""
SET 'execution.checkpointing.interval' = '5 s';

CREATE TABLE events (
  `@timestamp` STRING, Hostname STRING, Channel STRING, EventID INT, Image STRING, CommandLine STRING, host STRING,
  store_ts TIMESTAMP_LTZ(3) METADATA FROM 'store-timestamp' VIRTUAL,
  ts AS TO_TIMESTAMP(`@timestamp`, 'yyyy-MM-dd''T''HH:mm:ss.SSSX'),
  WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE
) WITH ('connector'='rocketmq','topic'='windows-events','format'='json','scan.startup.mode'='earliest-offset');

CREATE TABLE alerts (rule STRING, Hostname STRING, moment TIMESTAMP(3), CommandLine STRING)
WITH ('connector' = 'rocketmq', 'topic' = 'alerts', 'format' = 'json');
CREATE TABLE counts (window_start TIMESTAMP(3), Hostname STRING, starts BIGINT, shells BIGINT) WITH ('connector' = 'print');

-- Starts of processes: event 1 of Sysmon and 4688 of Security.
CREATE VIEW starts AS SELECT Hostname, Image, CommandLine, ts, store_ts FROM events WHERE EventID IN (1, 4688);

EXECUTE STATEMENT SET BEGIN
INSERT INTO alerts SELECT 'encoded powershell', Hostname, ts, CommandLine FROM starts
  WHERE REGEXP(CommandLine, '(?i)powershell.*\s-e(nc|ncodedcommand)?\s');
INSERT INTO alerts SELECT 'shadow copies deleted', Hostname, store_ts, CommandLine FROM starts
  WHERE REGEXP(CommandLine, '(?i)vssadmin.+delete\s+shadows');
INSERT INTO alerts SELECT 'certutil download', Hostname, ts, CommandLine FROM starts
  WHERE LOWER(Image) LIKE '%certutil.exe' AND REGEXP(CommandLine, '(?i)-urlcache');
INSERT INTO alerts SELECT CASE EventID WHEN 1102 THEN 'log cleared' ELSE 'audit changed' END, COALESCE(Hostname, host), ts,
  NULL FROM events WHERE Channel = 'Security' AND EventID IN (1102, 4719);
INSERT INTO alerts (Hostname, rule, CommandLine, moment) SELECT UPPER(Hostname), 'rundll32', CommandLine, ts FROM starts
  WHERE REGEXP(CommandLine, 'rundll32(\.exe)?\s+[^,]+,\s*#\d+') AND NOT (Image IS NULL);
INSERT INTO counts
  SELECT window_start, Hostname, COUNT(*), COUNT(*) FILTER (WHERE REGEXP(CommandLine, 'cmd|powershell'))
  FROM TABLE(TUMBLE(TABLE starts, DESCRIPTOR(ts), INTERVAL '10' MINUTE))
  GROUP BY window_start, window_end, Hostname HAVING COUNT(*) > 1;
END;
"""

READ = "Scan events (rocketmq) columns=[@timestamp STRING, Hostname STRING, "
TAIL = "ts TIMESTAMP(3) *ROWTIME*]"

GOLDEN = rf"""
Sink alerts (rocketmq)
  Project [EXPR$0 AS rule, Hostname, ts AS moment, CommandLine]
    Project ['encoded powershell' AS EXPR$0, Hostname, ts, CommandLine]
      Filter REGEXP(CommandLine, '(?i)powershell.*\s-e(nc|ncodedcommand)?\s')
        Project [Hostname, CommandLine, ts]
          Filter IN(EventID, 1, 4688)
            {READ}EventID INT, CommandLine STRING, {TAIL}
              watermark ts - 60000 ms
Sink alerts (rocketmq)
  Project [EXPR$0 AS rule, Hostname, CAST(store_ts AS TIMESTAMP(3)) AS moment, CommandLine]
    Project ['shadow copies deleted' AS EXPR$0, Hostname, store_ts, CommandLine]
      Filter REGEXP(CommandLine, '(?i)vssadmin.+delete\s+shadows')
        Project [Hostname, CommandLine, store_ts]
          Filter IN(EventID, 1, 4688)
            Scan events (rocketmq) columns=[Hostname STRING, EventID INT, CommandLine STRING, store_ts TIMESTAMP_LTZ(3)]
Sink alerts (rocketmq)
  Project [EXPR$0 AS rule, Hostname, ts AS moment, CommandLine]
    Project ['certutil download' AS EXPR$0, Hostname, ts, CommandLine]
      Filter AND(LIKE(LOWER(Image), '%certutil.exe'), REGEXP(CommandLine, '(?i)-urlcache'))
        Project [Hostname, Image, CommandLine, ts]
          Filter IN(EventID, 1, 4688)
            {READ}EventID INT, Image STRING, CommandLine STRING, {TAIL}
              watermark ts - 60000 ms
Sink alerts (rocketmq)
  Project [EXPR$0 AS rule, EXPR$1 AS Hostname, ts AS moment, CAST(EXPR$3 AS STRING) AS CommandLine]
    Project [CASE WHEN =(EventID, 1102) THEN 'log cleared' ELSE 'audit changed' END AS EXPR$0, COALESCE(Hostname, host) AS EXPR$1, ts, NULL AS EXPR$3]
      Filter AND(=(Channel, 'Security'), IN(EventID, 1102, 4719))
        {READ}Channel STRING, EventID INT, host STRING, {TAIL}
          watermark ts - 60000 ms
Sink alerts (rocketmq)
  Project [EXPR$1 AS rule, EXPR$0 AS Hostname, ts AS moment, CommandLine]
    Project [UPPER(Hostname) AS EXPR$0, 'rundll32' AS EXPR$1, CommandLine, ts]
      Filter AND(REGEXP(CommandLine, 'rundll32(\.exe)?\s+[^,]+,\s*#\d+'), NOT(IS NULL(Image)))
        Project [Hostname, Image, CommandLine, ts]
          Filter IN(EventID, 1, 4688)
            {READ}EventID INT, Image STRING, CommandLine STRING, {TAIL}
              watermark ts - 60000 ms
Sink counts (print)
  Project [window_start, Hostname, EXPR$2 AS starts, EXPR$3 AS shells]
    Project [window_start, Hostname, aggregate_0 AS EXPR$2, aggregate_1 AS EXPR$3]
      Filter >(aggregate_0, 1)
        WindowAggregate TUMBLE(ts, 600000 ms) keys=[Hostname] aggregates=[COUNT(*) AS aggregate_0, COUNT(*) FILTER (WHERE REGEXP(CommandLine, 'cmd|powershell')) AS aggregate_1] [append, own operator]
          state: open windows; in batch jobs Spark's own window
          Project [Hostname, CommandLine, ts]
            Filter IN(EventID, 1, 4688)
              {READ}EventID INT, CommandLine STRING, {TAIL}
                watermark ts - 60000 ms
"""


def compiled_job() -> JobPlan:
    plan = SqlSession().compile(SCRIPT)[-1]
    assert isinstance(plan, JobPlan)
    return plan


def test_the_script_becomes_one_job_with_this_plan() -> None:
    lines = [line for sink in compiled_job().sinks for line in explain_sink(sink)]
    assert lines == GOLDEN.strip().splitlines()


def test_the_settings_and_options_reach_the_plan() -> None:
    plan = compiled_job()
    assert plan.settings == {"execution.checkpointing.interval": "5 s"}
    assert {sink.table.options["topic"] for sink in plan.sinks[:5]} == {"alerts"}


@pytest.mark.parametrize("sink", range(6))
def test_each_insert_gives_the_sinks_columns_and_kinds_of_type(sink: int) -> None:
    written = compiled_job().sinks[sink]
    given = [(field.name, field.type.kind) for field in written.input.schema.fields]
    assert given == [(column.name, column.type.kind) for column in written.table.writable]


def test_crlf_and_tabs_change_nothing() -> None:
    windows = SCRIPT.replace("\n", "\r\n").replace("  ", "\t")
    plan = SqlSession().compile(windows)[-1]
    assert plan == compiled_job()
