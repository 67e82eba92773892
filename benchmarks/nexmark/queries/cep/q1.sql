-- Runs of bids that are low on average, the next one behind its end.
CREATE TABLE answers (
  auction BIGINT, bidder BIGINT, start_time TIMESTAMP(3), end_time TIMESTAMP(3), avg_price BIGINT
) WITH ('connector' = 'blackhole');

INSERT INTO answers
SELECT auction, bidder, start_time, end_time, avg_price
FROM bid MATCH_RECOGNIZE (
  PARTITION BY auction, bidder
  ORDER BY `dateTime`
  MEASURES
    FIRST(a.`dateTime`) AS start_time,
    LAST(a.`dateTime`) AS end_time,
    AVG(a.price) AS avg_price
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (a+ b)
  DEFINE a AS AVG(a.price) < 10000
);
