-- Alerts on readings of machines, which they publish over MQTT to factory/SITE/DEVICE. The rules of the store are
-- evaluated together, in one query. ${FACTORY_RULES} is that store, ${FACTORY_DEVICES} a directory with devices.csv.

-- A row for each reading that a rule matches. The key of a message is its MQTT topic; its levels are columns.
CREATE TABLE matches (
  rule STRING,
  title STRING,
  event STRING,
  mqtt_topic STRING METADATA FROM 'keys' VIRTUAL,
  site AS SPLIT_INDEX(mqtt_topic, '/', 1),
  device AS SPLIT_INDEX(mqtt_topic, '/', 2),
  moment AS PROCTIME()
) WITH ('connector' = 'rules', 'topic' = 'mqtt', 'store' = '${FACTORY_RULES}');

CREATE TABLE devices (
  device STRING,
  place STRING,
  max_temperature DOUBLE,
  is_watched BOOLEAN
) WITH ('connector' = 'filesystem', 'path' = '${FACTORY_DEVICES}', 'format' = 'csv', 'lookup.store' = 'dimension');

-- Its properties name the MQTT topic to whose subscribers the alert goes. No rule asks for a column of this table, so
-- the job, which reads the same topic, raises no alerts on alerts.
CREATE TABLE alerts (
  rule STRING,
  title STRING,
  site STRING,
  device STRING,
  place STRING,
  level STRING,
  reading STRING,
  properties MAP<STRING, STRING> METADATA
) WITH ('connector' = 'rocketmq', 'topic' = 'mqtt', 'format' = 'json');

INSERT INTO alerts
SELECT m.rule, m.title, m.site, m.device, d.place,
  CASE WHEN CAST(JSON_VALUE(m.event, '$.temperature') AS DOUBLE) > d.max_temperature THEN 'critical' ELSE 'high' END,
  m.event, MAP['mqtt_topic', 'alerts/' || m.device]
FROM matches AS m
JOIN devices FOR SYSTEM_TIME AS OF m.moment AS d ON m.device = d.device AND d.is_watched;
