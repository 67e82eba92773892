-- Five detections on command lines and a count of events per host, in one job over one topic.
-- Run it:  millstream sql -f examples/security/detect.sql

CREATE TABLE events (
  `@timestamp`  STRING,
  TimeCreated   STRING,
  Hostname      STRING,
  Channel       STRING,
  EventID       INT,
  Image         STRING,
  CommandLine   STRING,
  -- Recordings write the time as 2020-06-10T02:50:56.537Z or as 2020-10-19 12:28:44.333, always UTC.
  ts AS TO_TIMESTAMP(REPLACE(SUBSTRING(COALESCE(`@timestamp`, TimeCreated), 1, 19), 'T', ' ')),
  WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'windows-events',
  'format' = 'json',
  'scan.startup.mode' = 'earliest-offset'
);

CREATE TABLE alerts (
  rule         STRING,
  ts           TIMESTAMP(3),
  host         STRING,
  image        STRING,
  command_line STRING
) WITH ('connector' = 'print');

CREATE TABLE host_activity (
  window_start TIMESTAMP(3),
  window_end   TIMESTAMP(3),
  host         STRING,
  events       BIGINT,
  last_event_id INT
) WITH ('connector' = 'print');

EXECUTE STATEMENT SET
BEGIN

INSERT INTO alerts
SELECT 'encoded_powershell', ts, Hostname, Image, CommandLine FROM events
WHERE REGEXP(CommandLine, '(?i)powershell.*\s-e(nc|ncodedcommand)?\s+[A-Za-z0-9+/=]{20,}');

INSERT INTO alerts
SELECT 'credential_dump', ts, Hostname, Image, CommandLine FROM events
WHERE REGEXP(CommandLine, '(?i)(comsvcs\.dll.*minidump|reg(\.exe)?"?\s+save\s+hklm\\(sam|security|system)|mimikatz)');

INSERT INTO alerts
SELECT 'account_discovery', ts, Hostname, Image, CommandLine FROM events
WHERE REGEXP(CommandLine, '(?i)(whoami(\.exe)?"?(\s|$)|\bnet1?(\.exe)?"?\s+(user|group|localgroup)\b)');

INSERT INTO alerts
SELECT 'proxy_execution', ts, Hostname, Image, CommandLine FROM events
WHERE REGEXP(CommandLine, '(?i)\b(mshta|regsvr32|installutil|cmstp|wuauclt)(\.exe)?"?\s');

INSERT INTO alerts
SELECT 'service_or_registry_change', ts, Hostname, Image, CommandLine FROM events
WHERE REGEXP(CommandLine, '(?i)\b(sc(\.exe)?"?\s+(config|create)|reg(\.exe)?"?\s+add)\s');

INSERT INTO host_activity
SELECT window_start, window_end, Hostname, COUNT(*), MAX(EventID)
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, Hostname;

END;
