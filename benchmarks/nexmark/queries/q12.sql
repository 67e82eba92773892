-- How much each one bids in ten seconds of the clock.
CREATE TABLE answers (
  bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP(3), endtime TIMESTAMP(3)
) WITH ('connector' = 'blackhole');

CREATE VIEW clocked AS SELECT *, PROCTIME() AS p_time FROM bid;

INSERT INTO answers
SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE(TUMBLE(TABLE clocked, DESCRIPTOR(p_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
