-- Sums of ten seconds by shop; orders may come up to five seconds late.
CREATE TABLE orders (
  shop STRING,
  amount BIGINT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'rocketmq', 'topic' = 'orders', 'format' = 'json');

CREATE TABLE sums (shop STRING, total BIGINT, till TIMESTAMP(3))
WITH ('connector' = 'rocketmq', 'topic' = 'sums', 'format' = 'json');

INSERT INTO sums
SELECT shop, SUM(amount), window_end
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY shop, window_start, window_end;
