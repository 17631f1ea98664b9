"""Uses the server as a test does, so that its code and the rows are in memory. No connection stays open."""
import time

import psycopg2


def connect():
    """A new connection: the server starts a process for it, with its own seeds."""
    return psycopg2.connect(host="127.0.0.1", user="postgres", dbname="app")


def _warm():
    for _ in range(3):
        connection = connect()
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT * FROM revenue ORDER BY total DESC LIMIT 5")
            cursor.fetchall()
            cursor.execute("SELECT count(*) FROM orders JOIN customers ON customers.id = customer_id")
            cursor.execute("INSERT INTO customers (name) VALUES ('warm') RETURNING id, gen_random_uuid(), random()")
            cursor.execute("DELETE FROM customers WHERE name = 'warm'")
            connection.rollback()
        connection.close()


# The port accepts a moment before the server does.
for _attempt in range(100):
    try:
        connect().close()
        break
    except psycopg2.OperationalError:
        time.sleep(0.2)
_warm()
del _warm, _attempt, time
