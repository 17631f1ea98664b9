"""The connection: HELLO, garbage, truncated frames, requests."""
import errno, os, socket, struct, tempfile, time

from client import *
from test_streams import attach, listing

WHOLE_FORK = field(1, bytes(32)) + field(2, bytes(8))  # the required fields of AFTER_FORK


def test_hello(a):
    h = a.hello()
    assert h[2] == [b"1.0.0"] and struct.unpack("<Q", h[3][0])[0] > 0 and h[4] == [bytes(4)]
    a.start(["sleep", "100"])
    assert a.hello()[4] == [struct.pack("<I", 1)]


def test_garbage_before_a_frame(a):
    a.sock.sendall(b"\xf0\x4b\xf0\xf0\x4b\x01" + os.urandom(5000).replace(b"\xf0", b"x") + frame(PING, 3))
    a.expect(OK, 3)
    a.sock.sendall(frame(PING, 3, check=1) + frame(PING, 4))
    a.expect(OK, 4)


def test_truncated_frames_and_padding(a):
    """After any truncated frame, the padding of zeros lets the agent find the next one."""
    ident = a.start(["cat"], flags=STDIN)
    whole = frame(INPUT, ident, b"\0" + b"q" * 60_000)
    for cut in (1, 2, 15, 16, 17, 5000, len(whole) - 1):
        a.sock.sendall(whole[:cut])
        a.hello(padding=True)
        a.send(PING, cut)
        a.expect(OK, cut)


def test_truncated_start_is_not_run(a):
    """A START whose last string was replaced by zeros is refused: a truncated command must not run."""
    one, two = f"/tmp/forkd-cut-{os.getpid()}-a", f"/tmp/forkd-cut-{os.getpid()}-b"
    whole = frame(START, 5, start_payload(["touch", one, two], credit=BIG, label="x"))
    for cut in range(30, len(whole)):
        a.sock.sendall(whole[:cut])
        a.hello(padding=True)
        assert listing(a) == {}, f"cut at {cut} was run"
    assert not os.path.exists(one) and not os.path.exists(two)


def test_hello_detaches_all(a):
    ident = a.start(["bash", "-c", "while :; do echo tick; sleep 0.02; done"])
    a.expect(OUTPUT, ident)
    h = a.hello()
    assert h[4] == [struct.pack("<I", 1)]
    assert a.next(0.3) is None, "output after HELLO without ATTACH"
    a.send(CREDIT, ident, b"\1" + struct.pack("<I", 1000))
    assert a.next(0.3) is None, "credit does not attach"
    assert attach(a, ident, (0, 1000), (0, 0), (0, 0)).type == OK
    assert a.expect(OUTPUT, ident).payload[9:14] == b"tick\n"


def test_hello_while_output_waits(a):
    """A new host is served even when the queue is full of output that no host reads."""
    ident = a.new_id()
    a.send(START, ident, start_payload(["yes"]))
    time.sleep(0.3)
    a.hello(padding=True)
    assert listing(a)[ident][3] == [b"\0"]
    a.send(SIGNAL, ident, b"\x09\0")
    for _ in range(100):
        if listing(a)[ident][3] == [b"\1"]:
            return
        time.sleep(0.02)
    raise AssertionError("not killed")


def test_input_window_is_new_after_hello(a):
    """Unread input of an earlier host does not count against the new one."""
    script = "import time, sys; time.sleep(0.6); sys.stdout.write(str(len(sys.stdin.buffer.read())))"
    ident = a.start(["python3", "-c", script], flags=STDIN)
    for _ in range(2):
        for _ in range(2):
            a.send(INPUT, ident, b"\0" + bytes(60_000 if _ == 0 else 5_536))
        a.hello()
    a.send(INPUT, ident, b"\0" + bytes(65_534))
    assert attach(a, ident, (0, 100), (0, 100), (0, 0)).type == OK
    a.send(INPUT_EOF, ident, b"\0")
    d = a.finish(ident)
    assert d.out == str(2 * 65_536 + 65_534).encode(), d
    given = sum(struct.unpack_from("<I", f.payload, 1)[0] for f in d.frames if f.type == INPUT_CREDIT)
    assert given <= 65_534, "credit for bytes of an earlier host"


def test_malformed_payloads(a):
    bad = [(START, b"\1\2\0\0\0\0"), (START, bytes(5)), (INPUT, b""), (INPUT, b"\1x"), (INPUT_EOF, b"\2"), (CREDIT, b"\0abcd"),
           (CREDIT, b"\1abc"), (SIGNAL, b"\1"), (RESIZE, b"abc"), (ATTACH, bytes(35)), (HELLO, field(1, b"short")),
           (AFTER_FORK, field(1, bytes(31)) + field(2, bytes(8))), (CLOCK, b""), (CLOCK, field(1, bytes(7))),
           (AFTER_FORK, WHOLE_FORK + field(6, b"\2")), (AFTER_FORK, WHOLE_FORK + field(6, b"")), (AFTER_FORK, WHOLE_FORK + field(7, b"\2")),
           (AFTER_FORK, WHOLE_FORK + field(7, b"\1\0")), (AFTER_FORK, WHOLE_FORK + field(8, b"\2")),
           (AFTER_FORK, WHOLE_FORK + field(7, b"\1") + field(8, b"\1")), (NETWORK, b""), (NETWORK, field(1, b"\2")), (NETWORK, field(1, b"\0\0")),
           (NETWORK, bytes(6)), (0x7f, b""), (START, field(1, b"\0") + field(2, b"a\0b"))]
    for kind, payload in bad:
        a.send(kind, 50, payload)
        e = fields(a.expect(ERROR, 50).payload)
        assert struct.unpack("<I", e[1][0])[0] == errno.EPROTO, (kind, payload, e)


def test_after_fork_does_not_change_the_host(a):
    before, clock = os.uname().nodename, time.time()
    a.send(AFTER_FORK, 8, field(1, bytes(64)) + field(2, struct.pack("<Q", 10**18)) + field(3, "evil"))
    e = fields(a.expect(ERROR, 8).payload)
    assert struct.unpack("<I", e[1][0])[0] == errno.EPERM
    assert os.uname().nodename == before and abs(time.time() - clock) < 10


def test_network_does_not_change_the_host(a):
    for payload in (b"\0", b"\1"):
        a.send(NETWORK, 9, field(1, payload))
        e = fields(a.expect(ERROR, 9).payload)
        assert struct.unpack("<I", e[1][0])[0] == errno.EPERM
        assert e[2][0].startswith(b"network: ")


def test_clock(a):
    """Replies with its time; does not set a clock that is right or ahead by under a second, nor the host's."""
    for ahead in (0, 900_000_000):
        before = time.time_ns()
        a.send(CLOCK, 9, field(1, struct.pack("<Q", before - ahead)))
        own = struct.unpack("<Q", fields(a.expect(CLOCK_OK, 9).payload)[1][0])[0]
        assert before <= own <= time.time_ns()
    for wrong in (10**9, -2 * 10**9):
        a.send(CLOCK, 10, field(1, struct.pack("<Q", time.time_ns() + wrong)))
        assert struct.unpack("<I", fields(a.expect(ERROR, 10).payload)[1][0])[0] == errno.EPERM


def test_truncated_input_is_not_written(a):
    """INPUT whose end was replaced by zeros has no mark: the process gets none of it."""
    ident = a.start(["cat"], flags=STDIN)
    a.send(INPUT, ident, b"\0first,")
    whole = frame(INPUT, ident, b"\0" + b"q" * 300)
    for cut in range(16, len(whole)):
        a.sock.sendall(whole[:cut])
        a.hello(padding=True)
    a.send(INPUT, ident, b"\0last")
    a.send(INPUT_EOF, ident, b"\0")
    assert attach(a, ident, (0, 1000), (0, 1000), (0, 0)).type == OK
    assert a.finish(ident).out == b"first,last"


def only_pings(a, seconds):
    """The agent does not reply to requests of an earlier host: every frame belongs to a ping of this one."""
    end, n = time.monotonic() + seconds, 1_000_000
    while time.monotonic() < end:
        a.send(PING, n)
        f = a.next()
        assert (f.type, f.id) == (OK, n), f
        n += 1
        time.sleep(0.002)


def test_replies_to_an_earlier_host_are_dropped(a):
    """HELLO while everything is in progress: a sync, starts, file operations, a listing, output, exits."""
    with tempfile.TemporaryDirectory() as d:
        for round in range(20):
            for i in range(20):  # more than the agent runs in child processes
                a.send(SYNC, a.new_id())
            a.send(START, a.new_id(), start_payload(["sh", "-c", "echo x; sleep 0.01; echo y"]))
            a.send(START, a.new_id(), start_payload(["seq", "100000"], credit=20_000))
            a.send(START, a.new_id(), start_payload(["/no/program"]))
            a.send(START, a.new_id(), start_payload(kind=1, path="/etc/passwd"))
            ident = a.new_id()
            a.send(START, ident, start_payload(kind=2, path=f"{d}/whole"))
            a.send(INPUT, ident, b"\0content")
            a.send(INPUT_EOF, ident, b"\0")
            a.send(LIST, a.new_id())
            a.hello(padding=round % 2 == 1)
            only_pings(a, 0.03)
        only_pings(a, 0.3)
        assert open(f"{d}/whole").read() == "content", "what was complete is done"


def test_hello_stops_incomplete_writes_and_tcp(a):
    """An incomplete write leaves nothing behind; neither it nor a TCP stream is listed."""
    with tempfile.TemporaryDirectory() as d, socket.create_server(("127.0.0.1", 0)) as server:
        command = a.start(["cat"], flags=STDIN)
        write = a.start(kind=2, path=f"{d}/cut")
        a.send(INPUT, write, b"\0half")
        a.start(kind=9, port=server.getsockname()[1])
        peer, _ = server.accept()
        a.hello(padding=True)
        peer.settimeout(5)
        assert peer.recv(10) == b"", "the peer sees the end"
        peer.close()
        for _ in range(100):
            left = listing(a)
            if set(left) == {command}:
                break
            time.sleep(0.02)
        assert set(left) == {command}, left
        assert os.listdir(d) == []
        assert left[command][3] == [b"\0"], "a command must keep running"


def test_reseed_signal_is_ignored_by_a_kernel_without_handler(a):
    """Only for a process started as a language kernel, with control stream and label."""
    show = ["sh", "-c", "grep SigIgn /proc/self/status"]
    for flags, label, ignored in ((CONTROL, "kernel:x", True), (CONTROL, "other", False), (0, "kernel:x", False)):
        mask = int(a.run(show, flags=flags, label=label).out.split()[1], 16)
        assert bool(mask >> 40 & 1) == ignored, (flags, label, hex(mask))


def test_sync_and_ping(a):
    a.send(SYNC, 4)
    a.expect(OK, 4, timeout=60)
    for i in range(1, 501):
        a.send(PING, i)
    for i in range(1, 501):
        a.expect(OK, i)


def test_many_pings_unread(a):
    """Replies queue up while the host only writes; all arrive, in order."""
    import threading
    n = 60_000
    data = b"".join(frame(PING, i + 1) for i in range(n))
    t = threading.Thread(target=a.sock.sendall, args=(data,))
    a.sock.settimeout(None)
    t.start()
    time.sleep(0.5)
    other = Agent(a.sock.dup())
    for i in range(n):
        other.expect(OK, i + 1)
    t.join()
    a.sock.settimeout(10)


def test_idle_does_not_spin(a):
    ident = a.start(["sleep", "100"], flags=CONTROL | STDIN)
    a.start(["bash", "-c", "exec >&- 2>&-; sleep 100"])
    while a.next(0.3):
        pass

    def used():
        s = open(f"/proc/{a.child.pid}/stat").read().rsplit(")", 1)[1].split()
        return int(s[11]) + int(s[12])

    before, switches = used(), open(f"/proc/{a.child.pid}/status").read()
    time.sleep(1)
    count = lambda s: int(s.split("voluntary_ctxt_switches:")[1].split()[0])
    assert used() - before <= 1 and count(open(f"/proc/{a.child.pid}/status").read()) - count(switches) < 5
    assert ident


def test_peer_closes(a):
    ident = a.start(["sleep", "1000"])
    pid = struct.unpack("<I", listing(a)[ident][2][0])[0]
    a.sock.close()
    assert a.child.wait(5) == 0
    time.sleep(0.1)
    try:
        assert open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        pass
