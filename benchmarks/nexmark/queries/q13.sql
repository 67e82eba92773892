-- Bids with a word from a file.
CREATE TABLE answers (
  auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), `value` STRING
) WITH ('connector' = 'blackhole');

CREATE TABLE side_input (key BIGINT, `value` STRING)
WITH ('connector' = 'filesystem', 'path' = '${SIDE_INPUT}', 'format' = 'csv');

INSERT INTO answers
SELECT b.auction, b.bidder, b.price, b.`dateTime`, s.`value`
FROM (SELECT *, PROCTIME() AS p_time FROM bid) AS b
JOIN side_input FOR SYSTEM_TIME AS OF b.p_time AS s
ON MOD(b.auction, 10000) = s.key;
