-- Who sells things of category 10 in three states: a join without bounds.
CREATE TABLE answers (
  name STRING, city STRING, state STRING, id BIGINT
) WITH ('connector' = 'blackhole');

INSERT INTO answers
SELECT p.name, p.city, p.state, a.id
FROM auction AS a INNER JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA');
