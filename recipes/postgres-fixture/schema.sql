-- The schema of your tests goes here. This one is a small shop.
CREATE TABLE customers (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key uuid NOT NULL DEFAULT gen_random_uuid(),
  name text NOT NULL UNIQUE
);
CREATE TABLE orders (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  customer_id bigint NOT NULL REFERENCES customers ON DELETE CASCADE,
  amount numeric(10, 2) NOT NULL CHECK (amount > 0),
  placed_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX orders_by_customer ON orders (customer_id, placed_at);
CREATE VIEW revenue AS
  SELECT c.name, count(o.id) AS orders, coalesce(sum(o.amount), 0) AS total
  FROM customers c LEFT JOIN orders o ON o.customer_id = c.id
  GROUP BY c.name;

INSERT INTO customers (name) SELECT 'customer ' || n FROM generate_series(1, 100) AS n;
INSERT INTO orders (customer_id, amount) SELECT 1 + n % 100, 1 + n % 50 FROM generate_series(1, 5000) AS n;
ANALYZE;
