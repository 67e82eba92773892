-- The auctions with most bids in the last ten seconds, told every two.
CREATE TABLE answers (
  auction BIGINT, num BIGINT
) WITH ('connector' = 'blackhole');

INSERT INTO answers
SELECT counted.auction, counted.num
FROM (
  SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end
) AS counted
JOIN (
  SELECT MAX(each_one.num) AS most, each_one.starttime, each_one.endtime
  FROM (
    SELECT COUNT(*) AS num, window_start AS starttime, window_end AS endtime
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
  ) AS each_one
  GROUP BY each_one.starttime, each_one.endtime
) AS top
ON counted.starttime = top.starttime AND counted.endtime = top.endtime AND counted.num >= top.most;
