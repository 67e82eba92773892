-- Mean of a seller's last winning prices: OVER rows that change, which Flink refuses.
CREATE TABLE answers (
  seller STRING, avg_price BIGINT
) WITH ('connector' = 'blackhole');

INSERT INTO answers
SELECT CAST(won.seller AS STRING),
       AVG(won.price) OVER (PARTITION BY won.seller ORDER BY won.`dateTime` ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)
FROM (
  SELECT id, seller, price, `dateTime`
  FROM (
    SELECT a.id, a.seller, b.price, b.`dateTime`,
           ROW_NUMBER() OVER (PARTITION BY a.id, a.seller ORDER BY b.price DESC) AS place
    FROM auction AS a, bid AS b
    WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
  )
  WHERE place <= 1
) AS won;
