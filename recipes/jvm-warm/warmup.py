"""Sends requests until the JIT compiler has compiled what they need. The demo sends the same."""
import json
import time
import urllib.error
import urllib.request

text = ("the quick brown fox jumps over the lazy dog and counts its words " * 20).encode()


def ask(port=8080, path="/words"):
    """Answer of the service, and how long it took in seconds."""
    began = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data=text, timeout=120) as answer:
        body = json.load(answer)
    return body, time.monotonic() - began


def start_another(port=8081):
    """Starts the service again beside the warm one. Returns seconds to its first answer, and of that answer."""
    import subprocess

    began = time.monotonic()
    process = subprocess.Popen(["/opt/service/serve.sh", str(port)])
    try:
        while True:
            try:
                body, answer_secs = ask(port)
                return {"answer": body, "answer_secs": answer_secs, "total_secs": time.monotonic() - began}
            except urllib.error.URLError:
                if process.poll() is not None:
                    raise RuntimeError(f"the service exited with code {process.returncode}") from None
                time.sleep(0.02)
    finally:
        process.kill()
        process.wait()


_began = time.monotonic()
_times = []
# At least 2000 requests, unless they take longer than three minutes.
while len(_times) < 2000 and time.monotonic() - _began < 180:
    _times.append(ask()[1])
ask(path="/token")
print(f"{len(_times)} requests: the first took {_times[0] * 1000:.0f} ms, the last {_times[-1] * 1000:.0f} ms")
warm_requests = len(_times)
del _began, _times
