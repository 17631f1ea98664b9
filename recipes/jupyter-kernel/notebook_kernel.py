"""Runs cells in the Jupyter kernel of this machine, and keeps them as a notebook in /root/notebooks."""

import base64
import json
import urllib.request
import uuid

import websocket

address = "127.0.0.1:8888"


def _ask(path, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{address}/api/{path}", data, method=method)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


class Figure(bytes):
    """A PNG image that a cell showed. As the value of code, it is shown as an image."""

    def _repr_png_(self):
        return bytes(self)

    def __repr__(self):
        return f"<PNG image of {len(self)} bytes>"


class Kernel:
    """The kernel that runs, or a new one if none does."""

    def __init__(self, timeout=300):
        running = _ask("kernels")
        self.id = running[0]["id"] if running else _ask("kernels", {"name": "python3"})["id"]
        self._socket = websocket.create_connection(f"ws://{address}/api/kernels/{self.id}/channels", timeout=timeout)
        self.cells = []

    def run(self, code, keep=True):
        """Runs a cell. Returns its text; its images are in `figures` of the answer. `keep=False`: not in the notebook."""
        message = uuid.uuid4().hex
        header = {"msg_id": message, "msg_type": "execute_request", "session": "notebook"}
        header.update(username="", version="5.3", date="")
        content = {"code": code, "silent": False, "store_history": keep, "allow_stdin": False}
        body = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        self._socket.send(json.dumps(body))
        output, replied, idle = Output(), False, False
        while not (replied and idle):
            received = json.loads(self._socket.recv())
            if received["parent_header"].get("msg_id") != message:
                continue
            kind, content = received["msg_type"], received["content"]
            if kind == "error":
                raise RuntimeError("\n".join(content["traceback"]))
            output.add(kind, content)
            replied = replied or kind == "execute_reply"
            idle = idle or content.get("execution_state") == "idle"
        if keep:
            self.cells.append((code, output))
        return output

    def save(self, path):
        """Writes the cells as a notebook through the Jupyter server."""
        cells = [
            {"cell_type": "code", "source": code, "outputs": output.parts, "metadata": {}, "execution_count": number}
            for number, (code, output) in enumerate(self.cells, 1)
        ]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        content = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 4}
        return _ask(f"contents/{path}", {"type": "notebook", "content": content}, "PUT")["path"]

    def close(self):
        self._socket.close()


class Output:
    """What a cell printed and showed."""

    def __init__(self):
        self.text = ""
        self.figures = []
        self.parts = []

    def add(self, kind, content):
        if kind == "stream":
            self.text += content["text"]
            self.parts.append({"output_type": "stream", "name": content["name"], "text": content["text"]})
        if kind in ("display_data", "execute_result"):
            data = content["data"]
            if "image/png" in data:
                self.figures.append(Figure(base64.b64decode(data["image/png"])))
            else:
                self.text += data.get("text/plain", "") + "\n"
            number = {"execution_count": content["execution_count"]} if kind == "execute_result" else {}
            self.parts.append({"output_type": kind, "data": data, "metadata": {}, **number})

    def __repr__(self):
        return self.text
