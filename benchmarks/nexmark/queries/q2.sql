-- Bids on every 123rd auction.
CREATE TABLE answers (
  auction BIGINT, price BIGINT
) WITH ('connector' = 'blackhole');

INSERT INTO answers
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;
