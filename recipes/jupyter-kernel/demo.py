#!/usr/bin/env python3
"""Cells in forks of a running Jupyter kernel, over the Jupyter protocol. Needs the snapshot: forkd build jupyter-kernel"""

import base64
import http.client
import json
import os
import pathlib
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

here = pathlib.Path(__file__).resolve()
# In a checkout the SDK need not be installed.
sys.path += [str(here.parents[1] / "_shared"), str(here.parents[2] / "sdks/python/src")]
sys.dont_write_bytecode = True
from forkd import Forkd, ForkError
from plain_websocket import WebSocket

tag = os.environ.get("FORKD_DEMO_TAG", "jupyter-kernel")
forks = 3


def timed(work):
    began = time.monotonic()
    result = work()
    return result, time.monotonic() - began


def ask(sandbox, path, data=None):
    """Sends a request to Jupyter's REST interface, over a connection to the port in the guest."""
    with sandbox.ports.connect(8888) as connection:
        connection.settimeout(300)
        client = http.client.HTTPConnection("127.0.0.1:8888")
        client.sock = connection
        client.request("GET" if data is None else "POST", path, None if data is None else json.dumps(data))
        answer = client.getresponse()
        assert answer.status in (200, 201), (answer.status, answer.read())
        return json.load(answer)


class Kernel:
    """A Jupyter kernel, reached through the server's WebSocket."""

    def __init__(self, connection, kernel_id):
        self.socket = WebSocket(connection, f"/api/kernels/{kernel_id}/channels")
        self.session = uuid.uuid4().hex

    def run(self, code):
        """Runs a cell. Returns what it printed, and the forms of what it displayed."""
        message = uuid.uuid4().hex
        header = {"msg_id": message, "msg_type": "execute_request", "session": self.session}
        header.update(username="demo", version="5.3", date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        body = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        self.socket.send(json.dumps(body))
        text, shown, replied, idle = "", [], False, False
        while not (replied and idle):
            received = json.loads(self.socket.receive())
            if received["parent_header"].get("msg_id") != message:
                continue
            kind, content = received["msg_type"], received["content"]
            assert kind != "error", "\n".join(content["traceback"])
            text += content["text"] if kind == "stream" else ""
            if kind in ("display_data", "execute_result"):
                shown.append(content["data"])
            replied = replied or kind == "execute_reply"
            idle = idle or content.get("execution_state") == "idle"
        return text, shown


def explore(sandbox, index):
    (warm,) = ask(sandbox, "/api/kernels")
    with sandbox.ports.connect(8888) as connection:
        kernel = Kernel(connection, warm["id"])
        # The names of the warm kernel are there; each fork changes its own.
        (_, first), first_secs = timed(lambda: kernel.run(f"frame['d'] = {index}; round(float(frame['d'].sum()), 3)"))
        printed, _ = kernel.run("print(len(frame.columns), frame['d'].iloc[0], np.random.random(), __import__('random').random())")
        _, shown = kernel.run("frame[['a', 'd']].plot(); plt.show()")
    png = base64.b64decode(next(each["image/png"] for each in shown if "image/png" in each))
    assert png.startswith(b"\x89PNG"), png[:16]
    return {"sum": first[0]["text/plain"], "printed": printed.split(), "png": len(png), "first_secs": first_secs}


def start_another(sandbox):
    """A new kernel in the same guest: from the request for it to the end of the same imports and the first cell."""
    kernel_id = ask(sandbox, "/api/kernels", {"name": "python3"})["id"]
    with sandbox.ports.connect(8888) as connection:
        kernel = Kernel(connection, kernel_id)
        kernel.run((here.parent / "cell.py").read_text())
        return kernel.run("frame['d'] = 0; round(float(frame['d'].sum()), 3)")


with Forkd() as forkd, ThreadPoolExecutor(forks) as pool:
    children, fork_secs = timed(lambda: forkd.fork(tag, forks, ttl=3600))
    failed = [child for child in children if isinstance(child, ForkError)]
    assert not failed, failed
    try:
        print(f"{forks} forks of a Jupyter server with a kernel in {fork_secs:.2f} s")
        results = list(pool.map(explore, children, range(forks)))
        assert [result["sum"] for result in results] == [f"{200.0 * index}" for index in range(forks)], results
        assert all(result["printed"][:2] == ["4", str(index)] for index, result in enumerate(results)), results
        print(f"each changed its own table: {', '.join(result['sum'] for result in results)}")
        print(f"each plotted it: PNG images of {', '.join(str(result['png']) for result in results)} bytes")
        for place in (2, 3):
            assert len({result["printed"][place] for result in results}) == forks, results
        print("np.random.random() and random.random() differ in all forks")
        first_secs = max(result["first_secs"] for result in results)

        for child in children[1:]:
            child.kill()
        _, new_secs = timed(lambda: start_another(children[0]))
        print(f"first cell: {first_secs:.2f} s in a fork, {new_secs:.1f} s in a new kernel of the same server")
        assert first_secs < new_secs, (first_secs, new_secs)
    finally:
        list(pool.map(lambda child: child.kill(), children))

facts = {
    "forks": forks,
    "fork_ms": round(fork_secs * 1000),
    "first_cell_ms": round(first_secs * 1000),
    "new_kernel_first_cell_ms": round(new_secs * 1000),
    "times_faster": round(new_secs / first_secs, 1),
    "png_bytes": [result["png"] for result in results],
}
print(json.dumps({"recipe": "jupyter-kernel", "ok": True, "facts": facts}))
