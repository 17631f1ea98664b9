"""Streams: order, credit, kept output, attach and detach, exit."""
import errno, os, signal, struct, time

from client import *


def attach(a, ident, *pairs):
    a.send(ATTACH, ident, b"".join(struct.pack("<QI", o, c) for o, c in pairs))
    f = a.next()
    return a.next() if f.type == INPUT_CLOSED else f


def credit(a, ident, stream, n):
    a.send(CREDIT, ident, bytes([stream]) + struct.pack("<I", n))


def listing(a):
    a.send(LIST, 7777)
    out = {}
    while True:
        f = a.next()
        assert f.id == 7777
        if f.type == OK:
            return out
        assert f.type == LISTING
        x = fields(f.payload)
        out[struct.unpack("<I", x[1][0])[0]] = x


def received(a, ident, quiet=0.3):
    """Bytes of each stream until none arrive for a while."""
    got = {1: b"", 2: b"", 3: b""}
    while (f := a.next(quiet)) is not None:
        assert f.type == OUTPUT and f.id == ident, f
        got[f.payload[0]] += f.payload[9:]
    return got


def test_control_round_trip(a):
    ident = a.start(["bash", "-c", 'while read -r -u 3 x; do echo "r $x" >&3; done; echo end'], flags=CONTROL)
    for word in (b"one", b"two"):
        a.send(INPUT, ident, b"\3" + word + b"\n")
        assert a.expect(OUTPUT, ident).payload[9:] == b"r " + word + b"\n"
    a.send(INPUT_EOF, ident, b"\3")
    d = a.finish(ident, offsets=(0, 0, 12))
    assert (d.out, d.code, sorted(d.eof)) == (b"end\n", 0, [1, 2, 3])


def test_control_comes_after_output(a):
    script = "import os\nfor i in range(300):\n os.write(1, b'o%d,' % i * 40); os.write(2, b'e%d,' % i * 7); os.write(3, b'c%d,' % i)\n os.read(3, 1)\n"
    ident = a.start(["python3", "-c", script], flags=CONTROL)
    got = {1: b"", 2: b"", 3: b""}
    for i in range(300):
        while not got[3].endswith(b"c%d," % i):
            f = a.expect(OUTPUT, ident)
            got[f.payload[0]] += f.payload[9:]
        assert got[1].endswith(b"o%d," % i * 40) and got[2].endswith(b"e%d," % i * 7), f"control {i} came too early"
        a.send(INPUT, ident, b"\3.")
    a.finish(ident, offsets=tuple(len(got[i]) for i in (1, 2, 3)))


def test_control_waits_for_credit_of_output(a):
    script = "import os; os.write(1, b'x' * 1000); os.write(3, b'done'); os.read(3, 1)"
    ident = a.start(["python3", "-c", script], flags=CONTROL, credit=0)
    assert a.next(0.3) is None
    credit(a, ident, 3, 100)
    credit(a, ident, 1, 999)
    got = received(a, ident)
    assert got == {1: b"x" * 999, 2: b"", 3: b""}, got
    credit(a, ident, 1, 1)
    got = received(a, ident)
    assert got == {1: b"x", 2: b"", 3: b"done"}, got


def test_large_control_message(a):
    script = "import socket; s = socket.socket(fileno=3); n = 0\nwhile n < 3000000: n += len(s.recv(65536))\ns.sendall(b'y' * 3000000)"
    ident = a.start(["python3", "-c", script], flags=CONTROL)
    a.feed(ident, 3, b"z" * 3_000_000)
    assert a.finish(ident).ctl == b"y" * 3_000_000


def test_credit_blocks_the_process(a):
    ident = a.start(["bash", "-c", "head -c 1000000 /dev/zero; touch /proc/self/comm; echo finished >&2"], credit=0)
    credit(a, ident, 2, 1000)
    credit(a, ident, 1, 5000)
    got = received(a, ident)
    assert len(got[1]) == 5000 and got[2] == b"", "more than the credit, or the process did not block"
    credit(a, ident, 1, 300_000)
    got = received(a, ident)
    assert len(got[1]) == 300_000 and got[2] == b""
    credit(a, ident, 1, 10_000_000)
    d = a.finish(ident, offsets=(305_000, 0, 0))
    assert len(d.out) == 695_000 and d.err == b"finished\n"


def test_exit_waits_for_credit(a):
    ident = a.start(["echo", "hello"], credit=2)
    assert a.expect(OUTPUT, ident).payload[9:] == b"he"
    while f := a.next(0.3):
        assert f.type == OUTPUT_EOF and f.payload[0] == 2, f"before the output was sent: {f}"
    credit(a, ident, 1, 100)
    d = a.finish(ident, offsets=(2, 0, 0))
    assert d.out == b"llo\n" and d.code == 0


def test_exit_is_not_delayed_by_a_grandchild(a):
    begin = time.monotonic()
    d = a.run(["bash", "-c", "sleep 3 & echo here"])
    assert time.monotonic() - begin < 1.5 and d.out == b"here\n" and d.code == 0
    assert d.eof == [], "the pipes are still open"


def test_exit_with_a_writing_grandchild(a):
    """The pipe is never empty, but EXIT arrives after the bytes that the leader can have left in it."""
    ident = a.start(["bash", "-c", "echo $$; yes & sleep 0.2; exit 6"], credit=0, keep=1000)
    time.sleep(0.6)
    got, pid = b"", struct.unpack("<I", listing(a)[ident][2][0])[0]
    while True:
        credit(a, ident, 1, 500)
        f = a.next()
        if f.type == EXIT:
            break
        if f.type == OUTPUT:
            got += f.payload[9:]
        assert len(got) < 80_000, "EXIT waits for a process that is not the leader"
    os.killpg(pid, 9)
    assert f.payload[1] == 6 and got.startswith(b"%d\ny\n" % pid) and len(got) > 60_000


def test_grandchild_survives_forget(a):
    ident = a.start(["bash", "-c", "(sleep 0.5; echo late; sleep 0.2; echo later; touch /tmp/forkd-test-$PPID-$$; sleep 0.2) & echo $$-$PPID"])
    d = a.finish(ident)
    a.send(FORGET, ident)
    me, parent = d.out.decode().strip().split("-")
    mark = f"/tmp/forkd-test-{parent}-{me}"
    time.sleep(1.2)
    assert os.path.exists(mark), "it died of SIGPIPE"
    os.unlink(mark)


def test_later_output_is_kept(a):
    ident = a.start(["bash", "-c", "(sleep 0.4; echo late) & echo now"])
    assert a.finish(ident).out == b"now\n"
    time.sleep(0.8)
    assert attach(a, ident, (4, 100), (0, 0), (0, 0)).type == OK
    d = a.finish(ident, offsets=(4, 0, 0))
    assert d.out == b"late\n" and sorted(d.eof) == [1, 2]


def test_detach_and_attach(a):
    ident = a.start(["bash", "-c", "echo one; sleep 0.4; echo two; sleep 100"])
    assert a.expect(OUTPUT, ident).payload[9:] == b"one\n"
    a.send(DETACH, ident)
    assert a.next(0.8) is None, "output while detached"
    assert attach(a, ident, (4, 100), (0, 0), (0, 0)).type == OK
    f = a.expect(OUTPUT, ident)
    assert f.payload == b"\1" + struct.pack("<Q", 4) + b"two\n"
    assert attach(a, ident, (0, 100), (0, 0), (0, 0)).type == OK  # from the beginning
    assert a.expect(OUTPUT, ident).payload[1:] == struct.pack("<Q", 0) + b"one\ntwo\n"


def test_detached_drops_the_oldest(a):
    ident = a.start(["bash", "-c", "seq 1 20000; exec sleep 100"], keep=1000, credit=0)
    whole = b"".join(b"%d\n" % i for i in range(1, 20001))
    assert a.next(0.2) is None
    assert struct.unpack("<QQQ", listing(a)[ident][7][0])[0] == 1000, "it must block when the window is full"
    a.send(DETACH, ident)
    time.sleep(0.5)
    assert struct.unpack("<QQQ", listing(a)[ident][7][0])[0] == len(whole), "the process must continue while detached"
    assert attach(a, ident, (10, BIG), (0, 0), (0, 0)).type == OK
    f = a.expect(OUTPUT, ident)
    assert struct.unpack_from("<Q", f.payload, 1)[0] == len(whole) - 1000
    assert f.payload[9:] == whole[-1000:]


def test_keep_is_the_whole_window(a):
    """Many small writes fill the window like a few large ones."""
    ident = a.start(["bash", "-c", "for i in {1..3000}; do echo $i; done; exec sleep 100"], flags=DETACHED, keep=10_000)
    whole = b"".join(b"%d\n" % i for i in range(1, 3001))
    time.sleep(0.6)
    assert attach(a, ident, (0, BIG), (0, 0), (0, 0)).type == OK
    f = a.expect(OUTPUT, ident)
    assert f.payload[9:] == whole[-10_000:]


def test_start_detached(a):
    ident = a.start(["sh", "-c", "echo hidden; exit 5"], flags=DETACHED)
    assert a.next(0.4) is None
    assert attach(a, ident, (0, 100), (0, 100), (0, 0)).type == OK
    d = a.finish(ident)
    assert d.out == b"hidden\n" and d.code == 5


def test_attach_finished_twice(a):
    ident = a.start(["sh", "-c", "echo text; exit 4"])
    first = a.finish(ident)
    for _ in range(2):
        assert attach(a, ident, (0, 100), (0, 0), (0, 0)).type == OK
        again = a.finish(ident)
        assert (again.out, again.code, sorted(again.eof)) == (first.out, first.code, sorted(first.eof)), again
        assert again.frames[-1].payload == first.frames[-1].payload


def test_attach_unknown(a):
    f = attach(a, 999, (0, 0), (0, 0), (0, 0))
    assert f.type == ERROR and struct.unpack("<I", fields(f.payload)[1][0])[0] == errno.ESRCH


def test_forget(a):
    ident = a.start(["true"])
    a.finish(ident)
    assert ident in listing(a)
    a.send(FORGET, ident)
    assert ident not in listing(a)
    running = a.start(["sleep", "0.3"])
    a.send(FORGET, running)
    assert running in listing(a), "forgotten only when finished"
    assert a.finish(running).code == 0
    assert listing(a) == {}


def test_listing(a):
    one = a.start(["sleep", "100"], label="kernel:python", flags=CONTROL)
    two = a.start(["sh", "-c", "printf abc; printf defg >&2; exit 7"])
    a.finish(two)
    three = a.start(["sh", "-c", "kill -9 $$"])
    a.finish(three)
    x = listing(a)
    assert set(x) == {one, two, three}
    assert x[one][3] == [b"\0"] and x[one][4] == [b"kernel:python"] and x[one][5] == [b"sleep"]
    assert x[one][10] == [struct.pack("<I", CONTROL)] and x[one][6] == [b"\0"]
    os.kill(struct.unpack("<I", x[one][2][0])[0], 0)
    assert x[two][3] == [b"\1"] and x[two][8] == [b"\x07"] and x[two][9] == [b"\0"]
    assert x[two][7] == [struct.pack("<QQQ", 3, 4, 0)]
    assert x[three][9] == [b"\x09"]


def test_eof_of_a_running_process(a):
    ident = a.start(["bash", "-c", "echo x; exec >&-; sleep 100"])
    a.expect(OUTPUT, ident)
    f = a.expect(OUTPUT_EOF, ident)
    assert f.payload == b"\1" + struct.pack("<Q", 2)


def test_closed_stdin_is_reported(a):
    def answers(ident):
        a.send(ATTACH, ident, struct.pack("<QI", 0, BIG) * 3)
        seen = [a.next()]
        while seen[-1].type != OK:
            seen.append(a.next())
        return [f.type for f in seen]

    quiet = a.start(["sleep", "9"], flags=DETACHED)
    assert answers(quiet) == [INPUT_CLOSED, OK], "never opened"
    opened = a.start(["sleep", "9"], flags=DETACHED | STDIN)
    assert answers(opened) == [OK]
    a.send(INPUT_EOF, opened, b"\0")
    a.expect(INPUT_CLOSED, opened)
    assert answers(opened) == [INPUT_CLOSED, OK], "closed by the host"
    # The command closes it: the next input tells.
    ident = a.start(["sh", "-c", "exec 0<&-; echo closed; sleep 9"], flags=STDIN)
    a.expect(OUTPUT, ident)
    a.send(INPUT, ident, b"\0x")
    f = a.expect(INPUT_CLOSED, ident)
    assert f.payload == b"\0"
    for each in quiet, opened, ident:
        a.send(SIGNAL, each, bytes([signal.SIGKILL, 0]))
