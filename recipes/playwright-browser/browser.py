"""Drives the Chromium of this machine over its DevTools protocol."""

import base64
import json
import os
import signal
import time
import urllib.request

import websocket

address = "127.0.0.1:9222"


def wait_until_ready(secs=600):
    """Waits until the browser answers. Returns its version."""
    until = time.monotonic() + secs
    while True:
        try:
            with urllib.request.urlopen(f"http://{address}/json/version", timeout=60) as answer:
                return json.load(answer)["Browser"]
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def warm_up():
    """Uses the browser twice: fonts, styles, scripts and the encoder of screenshots are then loaded."""
    print(wait_until_ready())
    for color in ("white", "tomato"):
        page = Page()
        page.show(f"<body style='background:{color};font:30px sans-serif'><h1>warm</h1><button>a</button><input></body>")
        assert page.run("document.querySelector('h1').textContent") == "warm"
        assert page.screenshot().startswith(b"\x89PNG")
        page.close()


class Screenshot(bytes):
    """A PNG image. As the value of code, it is shown as an image."""

    def _repr_png_(self):
        return bytes(self)

    def __repr__(self):
        return f"<PNG image of {len(self)} bytes>"


def renew_network():
    """Ends the process for the network, which Chromium starts again: TLS must not draw the numbers of other forks."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if b"network.mojom.NetworkService" in file.read():
                    os.kill(int(name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended meanwhile


class Page:
    """A new page of the browser. The page of the snapshot (`new=False`) has the same random numbers in every fork."""

    def __init__(self, new=True, timeout=300):
        if new:
            request = urllib.request.Request(f"http://{address}/json/new?about:blank", method="PUT")
        else:
            request = urllib.request.Request(f"http://{address}/json/list")
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            found = json.load(answer)
        page = found if new else next(each for each in found if each["type"] == "page")
        self.id = page["id"]
        self._socket = websocket.create_connection(page["webSocketDebuggerUrl"], timeout=timeout)
        self._last = 0
        self._events = []

    def call(self, method, **params):
        """Calls a method of the DevTools protocol, such as `call("Page.navigate", url=...)`."""
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._last:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            if "method" in message:
                self._events.append(message["method"])

    def open(self, url):
        """Opens an address and waits until the page has loaded."""
        self.call("Page.enable")
        self._events.clear()
        problem = self.call("Page.navigate", url=url).get("errorText")
        if problem:
            raise RuntimeError(f"Cannot open {url}: {problem}")
        while "Page.loadEventFired" not in self._events:
            self._events.append(json.loads(self._socket.recv()).get("method"))
        return self

    def show(self, html):
        """Replaces the content of the page."""
        frame = self.call("Page.getFrameTree")["frameTree"]["frame"]["id"]
        self.call("Page.setDocumentContent", frameId=frame, html=html)
        return self

    def run(self, script):
        """Value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "the script failed"))
        return answer["result"].get("value")

    def screenshot(self, path=None):
        """The page as a PNG image, as bytes; with a path also as a file."""
        png = Screenshot(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
        if path:
            with open(path, "wb") as file:
                file.write(png)
        return png

    def close(self):
        self._socket.close()
        urllib.request.urlopen(f"http://{address}/json/close/{self.id}", timeout=60).close()
