-- Every bid as it is.
CREATE TABLE answers (
  auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra STRING
) WITH ('connector' = 'blackhole');

INSERT INTO answers
SELECT auction, bidder, price, `dateTime`, extra FROM bid;
