-- Bids with those who bid and what these sell: a join of three.
CREATE TABLE answers (
  bidder BIGINT, price BIGINT, channel STRING, url STRING, bid_extra STRING,
  person_id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, person_extra STRING,
  itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, auction_time TIMESTAMP(3),
  expires TIMESTAMP(3), seller BIGINT, category BIGINT, auction_extra STRING
) WITH ('connector' = 'blackhole');

INSERT INTO answers
SELECT bidder, price, channel, url, b.extra AS bid_extra,
       p.id AS person_id, name, emailAddress, creditCard, city, state, p.extra AS person_extra,
       itemName, description, initialBid, reserve, a.`dateTime` AS auction_time, expires, seller, category,
       a.extra AS auction_extra
FROM bid AS b
JOIN person AS p ON p.id = b.bidder
JOIN auction AS a ON a.seller = b.bidder;
