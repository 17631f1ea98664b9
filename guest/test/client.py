"""A small host side of the agent protocol for the tests. Every frame from the agent must be valid."""
import collections, os, socket, struct, subprocess, tempfile, time

HELLO, PING, START, INPUT, INPUT_EOF, CREDIT, SIGNAL, RESIZE = 1, 2, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15
ATTACH, DETACH, FORGET, LIST, AFTER_FORK, SYNC, POWEROFF, CLOCK, NETWORK = (
    0x16, 0x17, 0x18, 0x19, 0x20, 0x21, 0x22, 0x23, 0x24)
HELLO_OK, OK, ERROR, CLOCK_OK, STARTED, OUTPUT, OUTPUT_EOF, INPUT_CREDIT, EXIT, LISTING, INPUT_CLOSED = (
    0x81, 0x82, 0x83, 0x85, 0x90, 0x91, 0x92, 0x93, 0x94, 0x95, 0x96)
STDIN, PTY, CONTROL, RECURSIVE, APPEND, DETACHED, FOLLOW, EXCLUSIVE, ENTRIES, IN_PLACE = (
    1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
BIG = 1 << 31
Frame = collections.namedtuple("Frame", "type id payload")
Done = collections.namedtuple("Done", "out err ctl how code timed_out eof frames")


def frame(kind, ident=0, payload=b"", check=0):
    if kind == INPUT:
        payload += b"\1"  # the mark at its end
    head = struct.pack("<2sBBII", b"\xf0\x4b", 1, kind, ident, len(payload))
    a, b, c = struct.unpack("<III", head)
    return head + struct.pack("<I", a ^ b ^ c ^ 0x464B4431 ^ check) + payload


def field(key, value):
    if isinstance(value, str):
        value = os.fsencode(value)
    return struct.pack("<BI", key, len(value)) + value


def fields(payload):
    out, at = collections.defaultdict(list), 0
    while at < len(payload):
        key, size = struct.unpack_from("<BI", payload, at)
        assert at + 5 + size <= len(payload), "the field exceeds the payload"
        out[key].append(payload[at + 5:at + 5 + size])
        at += 5 + size
    return out


def start_payload(argv=(), env=(), kind=0, **k):
    p = field(1, bytes([kind]))
    p += b"".join(field(2, a) for a in argv) + b"".join(field(3, e) for e in env)
    shapes = dict(cwd=(4, None), user=(5, None), timeout=(6, "<I"), flags=(7, "<I"), size=(8, "<HH"), credit=(9, "<I"),
                  keep=(10, "<I"), path=(11, None), path2=(12, None), mode=(13, "<I"), offset=(14, "<Q"),
                  limit=(15, "<Q"), port=(16, "<H"), label=(17, None), depth=(18, "<I"))
    k.setdefault("credit", BIG)
    for name, value in k.items():
        key, shape = shapes[name]
        p += field(key, value if shape is None else struct.pack(shape, *(value if name == "size" else (value,))))
    return p


class Agent:
    """One connection to the agent."""

    def __init__(self, sock):
        self.sock, self.buf, self.ids = sock, bytearray(), 0

    def send(self, *args):
        self.sock.sendall(frame(*args))

    def next(self, timeout=10):
        """The next frame, or None when none arrives in time."""
        end = time.monotonic() + timeout
        while True:
            if len(self.buf) >= 16:
                magic, version, kind, ident, size, check = struct.unpack_from("<2sBBIII", self.buf)
                a, b, c = struct.unpack_from("<III", self.buf)
                assert magic == b"\xf0\x4b" and version == 1 and check == a ^ b ^ c ^ 0x464B4431, "broken stream"
                if len(self.buf) >= 16 + size:
                    f = Frame(kind, ident, bytes(self.buf[16:16 + size]))
                    del self.buf[:16 + size]
                    return f
            left = end - time.monotonic()
            if left <= 0:
                return None
            self.sock.settimeout(left)
            try:
                data = self.sock.recv(1 << 20)
            except (TimeoutError, socket.timeout):
                return None
            if not data:
                raise EOFError("the agent closed the connection")
            self.buf += data

    def expect(self, kind, ident=None, timeout=10):
        f = self.next(timeout)
        assert f and f.type == kind and ident in (None, f.id), f"wanted {kind:#x}, got {f}"
        return f

    def hello(self, padding=False):
        """Sends HELLO and skips all frames before its reply."""
        nonce = os.urandom(16)
        self.sock.sendall((b"\0" * 65552 if padding else b"") + frame(HELLO, 0, field(1, nonce)))
        end = time.monotonic() + 60
        while time.monotonic() < end:
            at = self.buf.find(field(1, nonce))
            if at >= 16:
                del self.buf[:at - 16]
                return fields(self.expect(HELLO_OK).payload)
            self.sock.settimeout(60)
            self.buf += self.sock.recv(1 << 20)
        raise AssertionError("no HELLO_OK")

    def new_id(self):
        self.ids += 1
        return self.ids

    def start(self, argv=(), **k):
        ident = self.new_id()
        self.send(START, ident, start_payload(argv, **k))
        f = self.next()
        assert f and f.id == ident and f.type in (STARTED, ERROR), f
        if f.type == ERROR:
            e = fields(f.payload)
            raise OSError(struct.unpack("<I", e[1][0])[0], e[2][0].decode())
        return ident

    def finish(self, ident, timeout=30, offsets=(0, 0, 0)):
        """Collects output until EXIT and checks that the offsets are contiguous."""
        data, at, eof, seen = [b"", bytearray(), bytearray(), bytearray()], list(offsets), [], []
        while True:
            f = self.next(timeout)
            assert f is not None, "no EXIT"
            assert f.id == ident, f"frame of {f.id} while waiting for {ident}: {f}"
            seen.append(f)
            if f.type == OUTPUT:
                stream, offset = struct.unpack_from("<BQ", f.payload)
                assert offset == at[stream - 1], f"offset {offset}, wanted {at[stream - 1]}"
                at[stream - 1] += len(f.payload) - 9
                data[stream] += f.payload[9:]
            elif f.type == OUTPUT_EOF:
                stream, offset = struct.unpack("<BQ", f.payload)
                assert offset == at[stream - 1]
                eof.append(stream)
            elif f.type == EXIT:
                how, code, timed, zero, user, system, rss = struct.unpack("<BBBBQQQ", f.payload)
                assert zero == 0
                return Done(bytes(data[1]), bytes(data[2]), bytes(data[3]), how, code, timed, eof, seen)
            else:
                assert f.type in (INPUT_CREDIT, INPUT_CLOSED), f

    def run(self, argv=(), forget=True, **k):
        ident = self.start(argv, **k)
        done = self.finish(ident)
        if forget:
            self.send(FORGET, ident)
        return done

    def feed(self, ident, stream, data):
        """Sends input within the window; returns other frames that arrived in the meantime."""
        window, at, other = 65536, 0, []
        while at < len(data):
            n = min(window, len(data) - at, 65534)
            if n:
                self.send(INPUT, ident, bytes([stream]) + data[at:at + n])
                at, window = at + n, window - n
                continue
            f = self.next()
            assert f, "no INPUT_CREDIT"
            if f.type == INPUT_CREDIT:
                assert f.payload[0] == stream
                window += struct.unpack_from("<I", f.payload, 1)[0]
            else:
                other.append(f)
        return other


def serve(binary):
    """Starts the agent on a socket; returns (process, Agent)."""
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "s")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    child = subprocess.Popen([binary, "--serve", path])
    listener.settimeout(10)
    conn, _ = listener.accept()
    listener.close()
    os.unlink(path)
    os.rmdir(folder)
    return child, Agent(conn)
