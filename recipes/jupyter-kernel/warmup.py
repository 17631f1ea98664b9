"""Starts a kernel of the Jupyter server and runs cells in it, over the same WebSocket that notebooks use.

The interpreter of forkd, in which this runs, is another process and stays as it is.
"""


def _warm():
    import json
    import urllib.request
    import uuid

    import websocket

    server = "127.0.0.1:8888"
    request = urllib.request.Request(f"http://{server}/api/kernels", b'{"name": "python3"}')
    with urllib.request.urlopen(request, timeout=300) as answer:
        kernel = json.load(answer)["id"]
    # An emulated processor needs a minute to start a kernel.
    socket = websocket.create_connection(f"ws://{server}/api/kernels/{kernel}/channels", timeout=500)

    def run(code):
        message = uuid.uuid4().hex
        header = {"msg_id": message, "msg_type": "execute_request", "session": "warm", "username": "", "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
        body = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        socket.send(json.dumps(body))
        replied = idle = False
        while not (replied and idle):
            received = json.loads(socket.recv())
            if received["parent_header"].get("msg_id") != message:
                continue
            content = received["content"]
            replied = replied or received["msg_type"] == "execute_reply"
            idle = idle or content.get("execution_state") == "idle"
            if received["msg_type"] == "error":
                raise RuntimeError("\n".join(content["traceback"]))

    with open("/opt/jupyter/cell.py") as file:
        run(file.read())
    # What only the second cell of a notebook does.
    run("frame.plot(); plt.show(); frame.head()")
    socket.close()


_warm()
del _warm
