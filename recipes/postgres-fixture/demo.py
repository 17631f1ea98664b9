#!/usr/bin/env python3
"""One PostgreSQL server per test, each a fork. Needs the snapshot: forkd build postgres-fixture"""

import json
import os
import pathlib
import socket
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor

# In a checkout the SDK need not be installed.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "sdks/python/src"))
from forkd import Forkd, ForkError

tag = os.environ.get("FORKD_DEMO_TAG", "postgres-fixture")
tests = [
    "INSERT INTO customers (name) SELECT 'new ' || n FROM generate_series(1, 7) AS n",
    "DELETE FROM customers WHERE id <= 10",
    "DROP VIEW revenue; DROP TABLE orders; ALTER TABLE customers ADD COLUMN email text",
    "UPDATE orders SET amount = 1",
]
run_test = """
connection = connect()
connection.autocommit = True
cursor = connection.cursor()
cursor.execute("SELECT count(*), (SELECT count(*) FROM orders), gen_random_uuid()::text FROM customers")
before = cursor.fetchone()
cursor.execute({sql!r})
cursor.execute("SELECT count(*), max(name) FROM customers")
customers = cursor.fetchone()[0]
cursor.execute("SELECT to_regclass('orders') IS NOT NULL")
orders = None
if cursor.fetchone()[0]:
    cursor.execute("SELECT count(*), sum(amount)::float FROM orders")
    orders = cursor.fetchone()
dict(before=before, customers=customers, orders=orders)
"""


class Postgres:
    """Just enough of PostgreSQL's protocol to send a query over a connection without a password."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        start = b"user\0postgres\0database\0app\0\0"
        connection.sendall(struct.pack("!ii", len(start) + 8, 3 << 16) + start)
        self._until_ready()

    def query(self, sql):
        body = sql.encode() + b"\0"
        self.connection.sendall(b"Q" + struct.pack("!i", len(body) + 4) + body)
        return self._until_ready()

    def _until_ready(self):
        rows = []
        while True:
            kind, body = self._message()
            if kind == b"E":
                raise RuntimeError(body.replace(b"\0", b" ").decode())
            if kind == b"D":
                rows.append(self._row(body))
            if kind == b"Z":
                return rows

    def _row(self, body):
        (count,) = struct.unpack_from("!h", body)
        at, row = 2, []
        for _ in range(count):
            (size,) = struct.unpack_from("!i", body, at)
            at += 4
            row.append(None if size < 0 else body[at : at + size].decode())
            at += max(size, 0)
        return row

    def _message(self):
        kind = self._read(1)
        (size,) = struct.unpack("!i", self._read(4))
        return kind, self._read(size - 4)

    def _read(self, size):
        pieces = b""
        while len(pieces) < size:
            piece = self.connection.recv(size - len(pieces))
            if not piece:
                raise RuntimeError("the server closed the connection")
            pieces += piece
        return pieces


def in_a_fork(forkd, sql):
    """Its own server for one test: from the request for it to the result of the test."""
    began = time.monotonic()
    with forkd.create(tag, ttl=1800) as sandbox:
        forked_secs = time.monotonic() - began
        result = sandbox.eval(run_test.format(sql=sql), timeout=300).result_json
        return result, forked_secs, time.monotonic() - began


def in_a_new_cluster(forkd):
    """The usual way, in the same kind of machine: initdb, start, load the schema, start for the test."""
    with forkd.create(tag, ttl=1800) as sandbox:
        began = time.monotonic()
        place = "/var/lib/postgresql/another"
        sandbox.commands.run(["/opt/fixture/make-cluster.sh", place, "5433"], timeout=900, check=True)
        with sandbox.commands.run(["/opt/fixture/serve.sh", place, "5433"], background=True):
            ready = ["sh", "-c", "until pg_isready -q -h 127.0.0.1 -p 5433; do sleep 0.05; done"]
            sandbox.commands.run(ready, timeout=300, check=True)
            count = ["psql", "-h", "127.0.0.1", "-p", "5433", "-U", "postgres", "-d", "app", "-Atc"]
            customers = sandbox.commands.run([*count, "SELECT count(*) FROM customers"], timeout=300, check=True)
            assert customers.stdout.strip() == "100", customers.stdout
            return time.monotonic() - began


with Forkd() as forkd:
    results = [in_a_fork(forkd, sql) for sql in tests]
    secs = [took for _, _, took in results]
    states = [state for state, _, _ in results]
    # Every test began with the rows of the schema, whatever the others have done.
    assert all(state["before"][:2] == [100, 5000] for state in states), states
    assert [state["customers"] for state in states] == [107, 90, 100, 100], states
    assert [state["orders"] and state["orders"][0] for state in states] == [5000, 4500, None, 5000], states
    assert states[3]["orders"][1] == 5000.0, states
    for sql, took in zip(tests, secs):
        print(f"{took:6.2f} s  {sql[:60]}")
    keys = [state["before"][2] for state in states]
    assert len(set(keys)) == len(tests), keys
    print(f"{len(tests)} tests changed {len(tests)} servers; each began with 100 customers and 5000 orders")

    # Two at the same time: one deletes everything, the other does not see it. From this host, over the port.
    two = forkd.fork(tag, 2, ttl=1800)
    assert not any(isinstance(child, ForkError) for child in two), two
    try:
        with two[0].ports.connect(5432) as one, two[1].ports.connect(5432) as other:
            one, other = Postgres(one), Postgres(other)
            one.query("DELETE FROM customers")
            counts = [each.query("SELECT count(*) FROM customers")[0][0] for each in (one, other)]
            assert counts == ["0", "100"], counts
    finally:
        for child in two:
            child.kill()
    print("over the port: one server has 0 customers, its sibling 100")

    new_secs = in_a_new_cluster(forkd)
    typical = sorted(secs)[len(secs) // 2]
    print(f"a new cluster took {new_secs:.1f} s, a fork with its test {typical:.2f} s")
    assert typical < new_secs, (typical, new_secs)

facts = {
    "tests": len(tests),
    "fork_ms": [round(forked * 1000) for _, forked, _ in results],
    "fork_and_test_ms": [round(took * 1000) for took in secs],
    "new_cluster_ms": round(new_secs * 1000),
    "times_faster": round(new_secs / typical, 1),
}
print(json.dumps({"recipe": "postgres-fixture", "ok": True, "facts": facts}))
