-- The ten highest bids of each auction with their places.
CREATE TABLE answers (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING,
  place BIGINT
) WITH ('connector' = 'blackhole');

INSERT INTO answers
SELECT *
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)
WHERE place <= 10;
