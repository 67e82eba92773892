-- Prices of one bidder that fall and rise again.
CREATE TABLE answers (
  auction BIGINT, bidder BIGINT, start_time TIMESTAMP(3), bottom_time TIMESTAMP(3), end_time TIMESTAMP(3)
) WITH ('connector' = 'blackhole');

INSERT INTO answers
SELECT auction, bidder, start_time, bottom_time, end_time
FROM bid MATCH_RECOGNIZE (
  PARTITION BY auction, bidder
  ORDER BY `dateTime`
  MEASURES
    first_row.`dateTime` AS start_time,
    LAST(falls.`dateTime`) AS bottom_time,
    LAST(rises.`dateTime`) AS end_time
  ONE ROW PER MATCH
  AFTER MATCH SKIP TO LAST rises
  PATTERN (first_row falls+ rises)
  DEFINE
    falls AS (LAST(falls.price, 1) IS NULL AND falls.price < first_row.price) OR falls.price < LAST(falls.price, 1),
    rises AS rises.price > LAST(falls.price, 1)
);
