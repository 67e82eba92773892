-- PYTHONPATH=examples/functions millstream sql --bounded -f examples/functions/report.sql
SET 'execution.runtime-mode' = 'batch';

CREATE FUNCTION grams AS 'orders:grams' LANGUAGE PYTHON;
CREATE FUNCTION taxed AS 'orders:taxed' LANGUAGE PYTHON;
CREATE FUNCTION region AS 'orders:region' LANGUAGE PYTHON;
CREATE FUNCTION items AS 'orders:items' LANGUAGE PYTHON;
CREATE FUNCTION weighted_mean AS 'orders:WeightedMean' LANGUAGE PYTHON;

CREATE VIEW orders AS
SELECT * FROM (VALUES
  ('kiosk', 'apples+pears', '2kg', 10.0),
  ('kiosk', 'plums', '500g', 20.0),
  ('market', 'apples', '1kg', 30.0),
  ('market', 'nuts', 'a bag', 40.0)) AS sold(shop, content, weight, price);

-- 'a bag' is no weight: the row's grams are NULL, and the job counts a failed call.
SELECT shop, region(shop) AS lies, item, grams(weight) AS grams, taxed(price) AS price
FROM orders, LATERAL TABLE(items(content)) AS of_order(item);

SELECT shop, weighted_mean(price, grams(weight)) AS mean_price FROM orders WHERE weight <> 'a bag' GROUP BY shop;
