-- Mean of the highest bids of each category: an aggregate of an aggregate of a join.
CREATE TABLE answers (
  id BIGINT, final BIGINT
) WITH ('connector' = 'blackhole');

INSERT INTO answers
SELECT highest.category, AVG(highest.final)
FROM (
  SELECT a.category, MAX(b.price) AS final
  FROM auction AS a, bid AS b
  WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
  GROUP BY a.id, a.category
) AS highest
GROUP BY highest.category;
