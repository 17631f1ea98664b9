"""Limits: 1,024 at once, 256 finished, 10,000 in a row, bounded memory."""
import errno, os, struct, time

from client import *
from test_process import refused
from test_streams import listing


def memory(a):
    return int(open(f"/proc/{a.child.pid}/status").read().split("VmRSS:")[1].split()[0])


def descriptors(a):
    return len(os.listdir(f"/proc/{a.child.pid}/fd"))


def test_1024_at_once(a):
    before = descriptors(a)
    idents = [a.start(["sleep", "300"]) for _ in range(1024)]
    refused(a, errno.EAGAIN, "START", ["true"])
    for ident in idents:
        a.send(SIGNAL, ident, b"\x09\0")
    left = set(idents)
    while left:
        f = a.next()
        assert f.type in (OUTPUT_EOF, EXIT), f
        if f.type == EXIT:
            left.remove(f.id)
    x = listing(a)
    assert set(x) <= set(idents) and len(x) == 256, f"{len(x)} finished are kept"
    assert descriptors(a) <= before + 2, "descriptors leak"
    assert a.run(["true"]).code == 0, "room again"


def test_finished_retention(a):
    idents = []
    for _ in range(300):
        idents.append(a.start(["true"]))
        a.finish(idents[-1])
    assert set(listing(a)) == set(idents[-256:]), "the oldest are dropped first"


def test_10000_in_a_row(a):
    for i in range(300):
        a.run(["true"])
    before, fds = memory(a), descriptors(a)
    for i in range(10_000):
        d = a.run(["/bin/echo", "n", str(i)])
        assert d.out == b"n %d\n" % i and d.code == 0
    assert memory(a) - before < 2000, f"grew by {memory(a) - before} KiB"
    assert descriptors(a) <= fds
    assert listing(a) == {}


def test_parallel_output(a):
    """Forty processes at once, each with its own checked stream, under small credits."""
    want = b"".join(b"%d\n" % i for i in range(1, 20001))
    idents = {a.new_id(): bytearray() for _ in range(40)}
    for ident in idents:
        a.send(START, ident, start_payload(["seq", "1", "20000"], credit=4096))
    left = set(idents)
    while left:
        f = a.next()
        assert f, "stalled"
        if f.type == OUTPUT:
            assert struct.unpack_from("<Q", f.payload, 1)[0] == len(idents[f.id])
            assert len(f.payload) - 9 <= 4096
            idents[f.id] += f.payload[9:]
            a.send(CREDIT, f.id, b"\1" + struct.pack("<I", len(f.payload) - 9))
        elif f.type == EXIT:
            left.remove(f.id)
    assert all(bytes(v) == want for v in idents.values())


def test_orphans_are_not_zombies(a):
    """The agent is not PID 1 here, so only its own children can be checked."""
    for _ in range(50):
        a.run(["true"])
    kids = open(f"/proc/{a.child.pid}/task/{a.child.pid}/children").read().split()
    assert kids == [], kids


def test_memory_of_a_flood(a):
    """A process writes without end while the host gives no credit or is not attached."""
    ident = a.start(["yes"], credit=0, keep=1 << 20)
    time.sleep(0.3)
    a.send(DETACH, ident)
    time.sleep(1)
    assert memory(a) < 12_000, memory(a)
