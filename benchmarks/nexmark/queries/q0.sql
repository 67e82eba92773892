-- Every bid as it is.
CREATE TABLE result (
  auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra STRING
) WITH ('connector' = 'blackhole');

INSERT INTO result
SELECT auction, bidder, price, `dateTime`, extra FROM bid;
