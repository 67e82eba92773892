-- Prices that drop within five seconds.
CREATE TABLE answers (
  auction BIGINT, bidder BIGINT, drop_time TIMESTAMP(3), drop_diff BIGINT
) WITH ('connector' = 'blackhole');

INSERT INTO answers
SELECT auction, bidder, drop_time, drop_diff
FROM bid MATCH_RECOGNIZE (
  PARTITION BY auction, bidder
  ORDER BY `dateTime`
  MEASURES
    c.`dateTime` AS drop_time,
    a.price - c.price AS drop_diff
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (a b* c) WITHIN INTERVAL '5' SECOND
  DEFINE
    b AS b.price > a.price - 50,
    c AS c.price < a.price - 50
);
