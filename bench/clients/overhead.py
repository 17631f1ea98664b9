"""What the Python SDK adds to a call: the same requests by hand and through the SDK, call by call in turns.

overhead.py SOCKET SANDBOX PATH CALLS prints one JSON object: case to times in ms.
"""

import http.client
import json
import socket
import sys
import time
import urllib.parse

from forkd import Forkd, Sandbox

socket_path, sandbox_id, stat_path, calls = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])


class UnixConnection(http.client.HTTPConnection):
    """A connection to a unix socket that is kept."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(300)
        self.sock.connect(socket_path)


raw = UnixConnection("localhost")


def ask(method, path, body=None):
    headers = {} if body is None else {"content-type": "application/json"}
    raw.request(method, path, None if body is None else json.dumps(body), headers)
    answer = raw.getresponse()
    text = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"{method} {path} answered {answer.status}: {text!r}")
    return text


def raw_exec():
    body = {"args": ["true"], "timeout_secs": 30, "stream": True}
    return [json.loads(line) for line in ask("POST", f"{at}/exec", body).splitlines()]


at = f"/v1/sandboxes/{sandbox_id}"
stat_query = urllib.parse.urlencode({"path": stat_path})
forkd = Forkd(socket=socket_path)
sandbox = Sandbox.connect(sandbox_id, forkd=forkd)
contenders = {
    "version": (lambda: json.loads(ask("GET", "/version")), lambda: forkd.version()),
    "stat": (
        lambda: json.loads(ask("GET", f"{at}/files/stat?{stat_query}")),
        lambda: sandbox.files.stat(stat_path),
    ),
    "exec": (raw_exec, lambda: sandbox.commands.run(["true"])),
}
found = {}
for name, pair in contenders.items():
    cases = [(f"call {name}, python raw", pair[0]), (f"call {name}, python", pair[1])]
    # The first calls open connections.
    for _, call in cases:
        for _ in range(min(calls, 20)):
            call()
    for turn in range(calls):
        for case, call in cases if turn % 2 == 0 else reversed(cases):
            begun = time.perf_counter()
            call()
            found.setdefault(case, []).append((time.perf_counter() - begun) * 1000)
json.dump(found, sys.stdout)
