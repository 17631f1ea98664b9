#!/usr/bin/env python3
"""A session with data, and variants of it that draw. Needs the snapshot: forkd build code-interpreter"""

import json
import os
import pathlib
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor

# In a checkout the SDK need not be installed.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "sdks/python/src"))
from forkd import Forkd, ForkError

tag = os.environ.get("FORKD_DEMO_TAG", "code-interpreter")
sales = "day,item,count\n" + "".join(
    f"2024-01-{day:02},{item},{count + day}\n" for day in range(1, 29) for item, count in (("tea", 3), ("cake", 10))
)
drawings = {
    "line": "sales.pivot(index='day', columns='item', values='count').plot()",
    "bar": "sales.groupby('item')['count'].sum().plot.bar()",
}


def timed(work):
    began = time.monotonic()
    result = work()
    return result, time.monotonic() - began


def draw(sandbox, kind):
    shown = sandbox.eval(drawings[kind], timeout=300).results
    figure = next(each for each in shown if each.png)
    png = figure.bytes_of("png")
    assert png.startswith(b"\x89PNG"), png[:16]
    return {"size": struct.unpack_from("!II", png, 16), "bytes": len(png), "chart": figure.chart}


with Forkd() as forkd, ThreadPoolExecutor(2) as pool:
    with forkd.create(tag, ttl=3600) as session:
        # Files come in, tables come out: for a person as HTML, for a program as data.
        session.files.write("/home/user/sales.csv", sales)
        table, table_secs = timed(lambda: session.eval("sales = pd.read_csv('sales.csv'); sales.head(3)", timeout=300))
        (result,) = table.results
        assert "<table" in (result.html or ""), result.formats()
        assert result.data and result.data["count"] == [4, 11, 5], result.data
        print(f"a table in {table_secs:.2f} s, as {', '.join(result.formats())}")

        # Two variants of the session, with its variables: each draws something else.
        children, fork_secs = timed(lambda: session.fork(len(drawings), ttl=3600))
        failed = [child for child in children if isinstance(child, ForkError)]
        assert not failed, failed
        try:
            figures, draw_secs = timed(lambda: list(pool.map(draw, children, drawings)))
            for kind, figure in zip(drawings, figures):
                assert figure["chart"] and figure["chart"]["type"] == kind, figure["chart"]
                width, height = figure["size"]
                print(f"{kind}: a PNG image of {width} x {height} pixels, {figure['bytes']} bytes, and its data")
            children[0].eval("del sales")
        finally:
            list(pool.map(lambda child: child.kill(), children))
        assert session.eval("len(sales)").result_json == 56

        # An exception is data, and the session continues.
        failure = session.run_code("sales['price']")
        assert failure.error_info and failure.error_info.name == "KeyError", failure.error_info
        exact = session.eval("import sympy; sympy.integrate(sympy.Symbol('x') ** 2)", timeout=300).results[0]
        assert exact.latex and "x^{3}" in exact.latex, exact.formats()
        node = session.eval("[1, 2, 3].map((n) => n ** 2)", language="node", timeout=300).result_json
        assert node == [1, 4, 9], node
        print(f"a formula: {exact.text}; and Node.js: {node}")

facts = {
    "table_ms": round(table_secs * 1000),
    "table_forms": result.formats(),
    "branch_and_fork_ms": round(fork_secs * 1000),
    "two_plots_ms": round(draw_secs * 1000),
    "png_bytes": [figure["bytes"] for figure in figures],
}
print(json.dumps({"recipe": "code-interpreter", "ok": True, "facts": facts}))
