-- Flows with what the model says of them, and how unusual each is for its host. Run train.py first, then:
--   env store=models millstream sql -f score.sql
CREATE TABLE flows (
  host STRING,
  bytes BIGINT,
  seconds DOUBLE,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'rocketmq', 'topic' = 'flows', 'format' = 'json');

CREATE MODEL leaks
INPUT (bytes DOUBLE, seconds DOUBLE)
OUTPUT (predict BIGINT, predict_proba DOUBLE)
WITH ('store' = '${store}');

CREATE TABLE alerts (host STRING, bytes BIGINT, chance DOUBLE, deviations DOUBLE, ts TIMESTAMP(3))
WITH ('connector' = 'rocketmq', 'topic' = 'alerts', 'format' = 'json');

INSERT INTO alerts
SELECT host, bytes, predict_proba, deviations, ts
FROM (
  SELECT host, bytes, predict, predict_proba, ts,
         ZSCORE(bytes, 3) OVER (PARTITION BY host ORDER BY ts) AS deviations
  FROM ML_PREDICT(TABLE flows, MODEL leaks, DESCRIPTOR(bytes, seconds))
)
WHERE predict = 1 OR deviations > 4;
