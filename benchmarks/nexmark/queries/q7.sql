-- The highest bids of each ten seconds: a stream joined with its own windows.
CREATE TABLE answers (
  auction BIGINT, price BIGINT, bidder BIGINT, `dateTime` TIMESTAMP(3), extra STRING
) WITH ('connector' = 'blackhole');

INSERT INTO answers
SELECT b.auction, b.price, b.bidder, b.`dateTime`, b.extra
FROM bid AS b
JOIN (
  SELECT MAX(price) AS highest, window_end AS `dateTime`
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) AS top
ON b.price = top.highest
WHERE b.`dateTime` BETWEEN top.`dateTime` - INTERVAL '10' SECOND AND top.`dateTime`;
