"""Drives one kernel as the agent does: a socket as descriptor 3, pipes for the output, /dev/null as input.

Threads collect the output. After an answer, `take()` returns everything: it writes a marker into the same
pipe and waits for it, so all that the kernel wrote before its answer has been read.
"""
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESEED = 41  # the signal that the agent sends
TIMEOUT = float(os.environ.get("FORKD_TEST_TIMEOUT", "20"))


PARTS = ("text", "html", "markdown", "svg", "latex", "javascript", "png", "jpeg", "pdf", "json", "data", "chart",
         "extra")


class Result:
    """A message `O`: attributes of its forms, bytes for images, values for JSON; None if there is none."""

    def __init__(self, payload):
        flags, mask = struct.unpack_from("<BH", payload, 4)
        self.main = bool(flags & 1)
        self.cut = [part for index, part in enumerate(PARTS) if mask & 1 << index]
        self.forms = {}
        at = 7
        while at < len(payload):
            number, size = struct.unpack_from("<BI", payload, at)
            part, data = PARTS[number - 1], payload[at + 5:at + 5 + size]
            assert len(data) == size and part not in self.forms
            binary, structured = ("png", "jpeg", "pdf"), ("json", "data", "chart", "extra")
            self.forms[part] = data if part in binary else json.loads(data) if part in structured else data.decode()
            at += 5 + size

    def __getattr__(self, name):
        if name not in PARTS:
            raise AttributeError(name)
        return self.forms.get(name)

    def __repr__(self):
        return "Result(%s, %.2000r, cut=%r)" % (self.main, self.forms, self.cut)


class Value:
    def __init__(self, payload, results=()):
        self.results = list(results)
        flags, size = struct.unpack_from("<BI", payload, 4)
        self.status = flags & 15
        self.json_cut = bool(flags & 32)
        self.text = payload[9:9 + size].decode()
        rest = payload[9 + size:]
        (length,) = struct.unpack_from("<I", rest)
        self.form = rest[4:4 + length].decode()
        rest = rest[4 + length:]
        # the length of the whole text, if it was cut; the number of the eval; results that were left out
        (self.whole, rest) = (struct.unpack_from("<Q", rest)[0], rest[8:]) if flags & 16 else (None, rest)
        (self.count, rest) = (struct.unpack_from("<I", rest)[0], rest[4:]) if flags & 64 else (None, rest)
        (self.dropped, rest) = (struct.unpack_from("<I", rest)[0], rest[4:]) if flags & 128 else (0, rest)
        assert rest == b""
        self.json = json.loads(self.form) if self.form else None

    def __repr__(self):
        return "Value(%d, %r, %r)" % (self.status, self.text[:2000], self.form[:300])


class Pipe:
    """One output stream: a reader thread, so that the kernel never blocks."""

    def __init__(self):
        self.reader, self.writer = os.pipe()
        self.data = b""
        self.changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while True:
            more = os.read(self.reader, 65536)
            if not more:
                os.close(self.reader)
                return
            with self.changed:
                self.data += more
                self.changed.notify_all()

    def take(self):
        """Everything that was written so far."""
        marker = b"\0mark%d\0" % time.monotonic_ns()
        os.write(self.writer, marker)
        with self.changed:
            assert self.changed.wait_for(lambda: marker in self.data, TIMEOUT)
            text, _, self.data = self.data.partition(marker)
        return text.decode()

    def wait_for(self, text):
        with self.changed:
            assert self.changed.wait_for(lambda: text.encode() in self.data, TIMEOUT), (text, self.data)


class Kernel:
    def __init__(self, argv, env=None, cwd=None):
        self.sock, theirs = socket.socketpair()
        self.sock.settimeout(TIMEOUT)
        self.out, self.err = Pipe(), Pipe()
        self.ids = 0
        descriptor = theirs.fileno()

        def descriptors():
            if descriptor != 3:
                os.dup2(descriptor, 3)
            os.set_inheritable(3, True)

        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=self.out.writer, stderr=self.err.writer, cwd=cwd,
            env=dict(os.environ, **(env or {})), close_fds=False, preexec_fn=descriptors, start_new_session=True)
        theirs.close()
        kind, payload = self.receive()
        assert kind == b"Y", (kind, payload)
        self.version = payload.decode()

    def close(self):
        self.sock.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out.writer)
        os.close(self.err.writer)

    def read(self, size):
        data = b""
        while len(data) < size:
            more = self.sock.recv(min(size - len(data), 1 << 20))
            if not more:
                raise EOFError("the kernel closed its control stream; stderr: " + self.err.take())
            data += more
        return data

    def receive(self):
        kind, length = struct.unpack("<cI", self.read(5))
        return kind, self.read(length)

    def send(self, kind, payload=b""):
        self.ids += 1
        self.sock.sendall(struct.pack("<cII", kind, 4 + len(payload), self.ids) + payload)
        return self.ids

    def answer(self, ident):
        kind, payload = self.receive()
        assert struct.unpack_from("<I", payload)[0] == ident, (kind, payload, ident)
        return kind, payload

    def ask(self, kind, payload=b""):
        kind, payload = self.answer(self.send(kind, payload))
        return kind, payload[4:]

    def start(self, code, context="default"):
        name = context.encode()
        return self.send(b"E", struct.pack("<H", len(name)) + name + code.encode())

    def value(self, ident):
        results = []
        while True:
            kind, payload = self.answer(ident)
            if kind != b"O":
                break
            results.append(Result(payload))
        assert kind == b"V", (kind, payload)
        return Value(payload, results)

    def eval(self, code, context="default"):
        return self.value(self.start(code, context))

    def eval_with(self, code, env, context="default"):
        name = context.encode()
        block = b"".join(b"%s=%s\0" % (key.encode(), value.encode()) for key, value in env.items())
        return self.value(self.send(b"X", struct.pack("<H", len(name)) + name + struct.pack("<I", len(block))
                                    + block + code.encode()))

    def new_context(self, context, cwd="", env=None, replace=False):
        texts = b"".join(struct.pack("<H", len(text)) + text for text in (context.encode(), cwd.encode()))
        block = b"".join(b"%s=%s\0" % (key.encode(), value.encode()) for key, value in (env or {}).items())
        return self.ask(b"N", bytes([replace]) + texts + block)

    def after_fork(self, entropy, env=()):
        return self.ask(b"R", struct.pack("<H", len(entropy)) + entropy + b"".join(e.encode() + b"\0" for e in env))

    def contexts(self):
        return [name for name, _ in self.contexts_with_cwd()]

    def contexts_with_cwd(self):
        kind, texts = self.ask(b"C")
        assert kind == b"A" and texts.endswith(b"\0")
        texts = texts[:-1].decode().split("\0")
        return list(zip(texts[::2], texts[1::2]))

    def drop(self, context):
        name = context.encode()
        return self.ask(b"D", struct.pack("<H", len(name)) + name)

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def reseed(self):
        self.process.send_signal(RESEED)
