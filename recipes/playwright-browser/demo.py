#!/usr/bin/env python3
"""Screenshots from forks of a running Chromium, over DevTools. Needs the snapshot: forkd build playwright-browser"""

import base64
import http.client
import json
import os
import pathlib
import struct
import sys
import time
import zlib

here = pathlib.Path(__file__).resolve()
# In a checkout the SDK need not be installed.
sys.path += [str(here.parents[1] / "_shared"), str(here.parents[2] / "sdks/python/src")]
sys.dont_write_bytecode = True
from forkd import Forkd, ForkError
from plain_websocket import WebSocket

tag = os.environ.get("FORKD_DEMO_TAG", "playwright-browser")
colors = {"red": (255, 0, 0), "lime": (0, 255, 0)}
html = """
<body style="margin:0;background:{color};font:40px sans-serif">
<button onclick="document.title = 'pressed {color}'; this.textContent = 'pressed'">press</button>
"""

start_another = """
import subprocess, time
began = time.monotonic()
quiet = subprocess.DEVNULL
process = subprocess.Popen(["/opt/browser/serve.sh", "9223", "/tmp/another"], stdout=quiet, stderr=quiet)
try:
    browser.address = "127.0.0.1:9223"
    browser.wait_until_ready()
    browser.Page(new=False).show("<h1>new</h1>").screenshot()
    took = time.monotonic() - began
finally:
    process.kill()
took
"""


def timed(work):
    began = time.monotonic()
    result = work()
    return result, time.monotonic() - began


class Page:
    """A new page of the browser in a sandbox, over a connection to its DevTools port."""

    def __init__(self, sandbox):
        with sandbox.ports.connect(9222) as connection:
            connection.settimeout(300)
            http_client = http.client.HTTPConnection("127.0.0.1:9222")
            http_client.sock = connection
            http_client.request("PUT", "/json/new?about:blank")
            page = json.load(http_client.getresponse())
        path = "/" + page["webSocketDebuggerUrl"].split("/", 3)[3]
        self.socket = WebSocket(sandbox.ports.connect(9222), path, host="127.0.0.1:9222")
        self.last = 0

    def call(self, method, **params):
        self.last += 1
        self.socket.send(json.dumps({"id": self.last, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self.last:
                assert "error" not in message, message
                return message["result"]

    def show(self, html):
        frame = self.call("Page.getFrameTree")["frameTree"]["frame"]["id"]
        self.call("Page.setDocumentContent", frameId=frame, html=html)

    def run(self, script):
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


def last_pixel(png):
    """Width and height of a PNG image, and its last pixel."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n"), png[:16]
    width, height, depth, kind = struct.unpack_from("!IIBB", png, 16)
    assert depth == 8 and kind in (2, 6), (depth, kind)
    size = {2: 3, 6: 4}[kind]
    at, data = 8, b""
    while at < len(png):
        length, name = struct.unpack_from("!I4s", png, at)
        data += png[at + 8 : at + 8 + length] if name == b"IDAT" else b""
        at += length + 12
    rows, stride = zlib.decompress(data), width * size + 1
    above = bytearray(width * size)
    for row in range(height):
        line = rows[row * stride : (row + 1) * stride]
        above = unfilter(line[0], bytearray(line[1:]), above, size)
    return width, height, tuple(above[-size:][:3])


def unfilter(kind, line, above, size):
    """Undoes the filter of a row of a PNG image."""
    if kind == 2:
        return bytearray((a + b) & 255 for a, b in zip(line, above))
    for index in range(len(line)):
        left = line[index - size] if index >= size else 0
        corner = above[index - size] if index >= size else 0
        if kind == 1:
            guess = left
        elif kind == 3:
            guess = (left + above[index]) // 2
        elif kind == 4:
            near = left + above[index] - corner
            guess = min((left, above[index], corner), key=lambda each: abs(near - each))
        else:
            return line
        line[index] = (line[index] + guess) & 255
    return line


def visit(sandbox, color):
    page = Page(sandbox)
    page.show(html.format(color=color))
    page.run("document.querySelector('button').click()")
    title = page.run("document.title")
    png, shot_secs = timed(page.screenshot)
    drawn = page.run("[Math.random(), crypto.getRandomValues(new Uint32Array(2)).join()].join()")
    return {"title": title, "png": png, "shot_secs": shot_secs, "drawn": drawn}


with Forkd() as forkd:
    children, fork_secs = timed(lambda: forkd.fork(tag, len(colors), ttl=3600))
    failed = [child for child in children if isinstance(child, ForkError)]
    assert not failed, failed
    try:
        print(f"{len(colors)} forks of a running Chromium in {fork_secs:.2f} s")
        # One after the other: each is then as alone on the host as the new browser below.
        timed_shots = [timed(lambda: visit(child, color)) for child, color in zip(children, colors)]
        shots, visit_secs = [shot for shot, _ in timed_shots], [secs for _, secs in timed_shots]
        assert [shot["title"] for shot in shots] == [f"pressed {color}" for color in colors], shots
        sizes = [last_pixel(shot["png"]) for shot in shots]
        for (width, height, pixel), color in zip(sizes, colors):
            assert width > 500 and height > 300 and pixel == colors[color], (color, width, height, pixel)
        width, height, _ = sizes[0]
        print(f"each pressed a button on its own page and took a screenshot of {width} x {height} pixels")

        assert len({shot["drawn"] for shot in shots}) == len(colors), shots
        print("random numbers of the pages differ")

        for child in children[1:]:
            child.kill()
        new_secs = children[0].eval(start_another, timeout=600).result_json
        first_secs = fork_secs + max(visit_secs)
        print(f"to the screenshot: {first_secs:.1f} s with a fork, {new_secs:.1f} s with a new browser in the same guest")
    finally:
        for child in children:
            child.kill()

facts = {
    "forks": len(colors),
    "fork_ms": round(fork_secs * 1000),
    "page_and_screenshot_ms": [round(secs * 1000) for secs in visit_secs],
    "screenshot_ms": [round(shot["shot_secs"] * 1000) for shot in shots],
    "png_bytes": [len(shot["png"]) for shot in shots],
    "pixels": [width, height],
    "new_browser_ms": round(new_secs * 1000),
    "times_faster": round(new_secs / first_secs, 1),
}
print(json.dumps({"recipe": "playwright-browser", "ok": True, "facts": facts}))
