-- Readings over 40 degrees, from a topic that also holds lines that are no JSON.

CREATE TABLE readings (
  device  STRING,
  celsius DOUBLE
) WITH (
  'connector' = 'rocketmq',
  'topic' = 'readings',
  'format' = 'json',
  'scan.startup.mode' = 'earliest-offset'
);

SELECT device, celsius, celsius * 1.8 + 32 AS fahrenheit
FROM readings
WHERE celsius > 40;
