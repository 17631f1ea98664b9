"""File operations and TCP."""
import errno, hashlib, os, pwd, shutil, signal, socket, stat, struct, tempfile, threading, time

from client import *

READ, WRITE, LISTDIR, STAT, MKDIR, MOVE, REMOVE, CHMOD, CONNECT, WATCH = range(1, 11)


def folder(case):
    """A test with its own directory."""
    def run(a):
        d = tempfile.mkdtemp(prefix="forkd-files-")
        os.chmod(d, 0o755)
        try:
            case(a, d)
        finally:
            shutil.rmtree(d)
    run.__name__ = case.__name__
    return run


def fails(a, code, **k):
    d = a.run(**k)
    assert d.code == code and d.how == 0, f"exit {d.code} ({errno.errorcode.get(d.code)}), wanted {errno.errorcode[code]}: {d.err}"
    assert d.err.endswith(b"\n") and d.err.count(b"\n") == 1, d.err


def write(a, path, data, **k):
    ident = a.start(kind=WRITE, path=path, **k)
    for f in a.feed(ident, 0, data):
        assert f.type != EXIT, f
    a.send(INPUT_EOF, ident, b"\0")
    return a.finish(ident)


def records(data):
    """Stat records by name. The first of a listing is the directory itself, with its whole path."""
    out, at = {}, 0
    while at < len(data):
        kind, mode, size, mtime, uid, gid, end_kind, end_mode = struct.unpack_from("<cIQQIIcI", data, at)
        at += 34
        texts = []
        for _ in range(5):
            n = struct.unpack_from("<H", data, at)[0]
            texts.append(data[at + 2:at + 2 + n])
            at += 2 + n
        name, target, owner, group, resolved = texts
        assert name not in out, name
        out[name] = dict(type=kind, mode=mode, size=size, mtime=mtime, uid=uid, gid=gid, target=target, owner=owner,
                         group=group, resolved=resolved, end_type=end_kind.rstrip(b"\0"), end_mode=end_mode)
    assert at == len(data)
    return out


def entries(data):
    """The records of a listing without that of the directory."""
    return dict(list(records(data).items())[1:])


@folder
def test_read(a, d):
    data = os.urandom(300_000)
    open(f"{d}/f", "wb").write(data)
    assert a.run(kind=READ, path=f"{d}/f").out == data
    assert a.run(kind=READ, path=f"{d}/f", offset=100, limit=7).out == data[100:107]
    assert a.run(kind=READ, path=f"{d}/f", offset=299_990).out == data[-10:]
    fails(a, errno.ENOENT, kind=READ, path=f"{d}/none")
    fails(a, errno.EISDIR, kind=READ, path=d)
    os.chmod(f"{d}/f", 0o600)
    fails(a, errno.EACCES, kind=READ, path=f"{d}/f", user="daemon")


@folder
def test_write_is_atomic(a, d):
    path = f"{d}/sub/dir/f"
    assert write(a, path, b"first").code == 0
    assert open(path, "rb").read() == b"first" and stat.S_IMODE(os.stat(path).st_mode) == 0o644
    os.chmod(path, 0o751)
    os.chown(path, 1, 8)
    ident = a.start(kind=WRITE, path=path)
    a.send(INPUT, ident, b"\0second")
    time.sleep(0.2)
    assert open(path, "rb").read() == b"first", "changed before the end"
    a.send(INPUT_EOF, ident, b"\0")
    assert a.finish(ident).code == 0
    assert open(path, "rb").read() == b"second"
    s = os.stat(path)
    assert (stat.S_IMODE(s.st_mode), s.st_uid, s.st_gid) == (0o751, 1, 8), "an existing file keeps mode and owner"
    assert os.listdir(os.path.dirname(path)) == ["f"]


@folder
def test_killed_write_changes_nothing(a, d):
    open(f"{d}/f", "w").write("old")
    ident = a.start(kind=WRITE, path=f"{d}/f")
    a.send(INPUT, ident, b"\0" + b"n" * 60_000)
    time.sleep(0.2)
    a.send(SIGNAL, ident, bytes([signal.SIGKILL, 0]))
    x = a.finish(ident)
    assert (x.how, x.code) == (1, 9)
    assert open(f"{d}/f").read() == "old" and os.listdir(d) == ["f"], os.listdir(d)


@folder
def test_write_flags(a, d):
    assert write(a, f"{d}/f", b"one", mode=0o600).code == 0
    assert stat.S_IMODE(os.stat(f"{d}/f").st_mode) == 0o600
    assert write(a, f"{d}/f", b" two", flags=APPEND).code == 0
    assert open(f"{d}/f").read() == "one two"
    assert write(a, f"{d}/f", b"x", flags=EXCLUSIVE).code == errno.EEXIST
    assert open(f"{d}/f").read() == "one two"
    assert write(a, f"{d}/g", b"x", flags=EXCLUSIVE).code == 0
    os.symlink("f", f"{d}/l")
    assert write(a, f"{d}/l", b"through").code == 0
    assert os.path.islink(f"{d}/l") and open(f"{d}/f").read() == "through"
    assert write(a, d, b"x").code == errno.EISDIR
    assert write(a, "/dev/null", b"x").code == 0 and stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert write(a, f"{d}/h", b"x", user="daemon").code == errno.EACCES
    assert write(a, f"{d}/f/under", b"x").code == errno.ENOTDIR


@folder
def test_100_mb(a, d):
    block = os.urandom(1 << 20)
    digest, ident = hashlib.sha256(), a.start(kind=WRITE, path=f"{d}/big")
    data = block * 100
    a.feed(ident, 0, data)
    a.send(INPUT_EOF, ident, b"\0")
    assert a.finish(ident, timeout=60).code == 0
    assert os.path.getsize(f"{d}/big") == len(data)
    ident, got = a.start(kind=READ, path=f"{d}/big", credit=1 << 20), 0
    while True:
        f = a.next(30)
        if f.type == EXIT:
            assert f.payload[1] == 0
            break
        if f.type == OUTPUT:
            assert struct.unpack_from("<Q", f.payload, 1)[0] == got
            got += len(f.payload) - 9
            digest.update(f.payload[9:])
            a.send(CREDIT, ident, b"\1" + struct.pack("<I", len(f.payload) - 9))
    assert got == len(data) and digest.digest() == hashlib.sha256(data).digest()


@folder
def test_list_and_stat(a, d):
    open(f"{d}/f", "w").write("12345")
    os.chmod(f"{d}/f", 0o4755)
    os.utime(f"{d}/f", ns=(5, 1_700_000_000_123_456_789))
    os.mkdir(f"{d}/sub")
    os.symlink("f", f"{d}/l")
    os.mkfifo(f"{d}/p")
    open(os.fsencode(d) + b"/\xff\n", "w").close()
    r = entries(a.run(kind=LISTDIR, path=d).out)
    assert {k: v["type"] for k, v in r.items()} == {b"f": b"f", b"sub": b"d", b"l": b"l", b"p": b"p", b"\xff\n": b"f"}
    assert r[b"f"] == dict(type=b"f", mode=0o4755, size=5, mtime=1_700_000_000_123_456_789, uid=0, gid=0, target=b"",
                           owner=b"root", group=b"root", resolved=b"", end_type=b"", end_mode=0)
    assert (r[b"l"]["target"], r[b"l"]["resolved"]) == (b"f", os.fsencode(f"{d}/f"))
    assert (r[b"l"]["end_type"], r[b"l"]["end_mode"]) == (b"f", 0o4755)
    assert records(a.run(kind=STAT, path=f"{d}/l").out)[os.fsencode(f"{d}/l")]["type"] == b"l"
    assert records(a.run(kind=STAT, path=f"{d}/l", flags=FOLLOW).out)[os.fsencode(f"{d}/l")]["size"] == 5
    assert records(a.run(kind=STAT, path="/").out)[b"/"]["type"] == b"d"
    fails(a, errno.ENOENT, kind=STAT, path=f"{d}/none")
    fails(a, errno.ENOTDIR, kind=LISTDIR, path=f"{d}/f")
    for i in range(3000):
        open(f"{d}/sub/{'n' * 100}{i}", "w").close()
    assert len(entries(a.run(kind=LISTDIR, path=f"{d}/sub").out)) == 3000


@folder
def test_list_below(a, d):
    os.makedirs(f"{d}/a/b/c")
    os.makedirs(f"{d}/closed")
    os.symlink("a", f"{d}/l")
    os.symlink("nowhere", f"{d}/a/dangling")
    os.chown(f"{d}/a", 12345, 1)
    os.chmod(f"{d}/closed", 0o700)
    open(f"{d}/closed/f", "w").close()
    names = lambda **k: set(entries(a.run(kind=LISTDIR, path=d, **k).out))
    assert names() == names(depth=1) == {b"a", b"l", b"closed"}
    assert names(depth=2) == {b"a", b"a/b", b"a/dangling", b"l", b"closed", b"closed/f"}, "links are not followed"
    assert names(depth=9) == names(depth=2) | {b"a/b/c"}
    r = entries(a.run(kind=LISTDIR, path=d, depth=2, user="daemon").out)
    assert b"closed" in r and b"closed/f" not in r, "what the user cannot read is left out"
    assert (r[b"a"]["owner"], r[b"a"]["group"]) == (b"", b"daemon"), r[b"a"]
    assert r[b"l"]["resolved"] == os.fsencode(f"{d}/a") and r[b"l"]["end_type"] == b"d"
    assert (r[b"a/dangling"]["resolved"], r[b"a/dangling"]["end_type"]) == (b"", b"")
    assert list(records(a.run(kind=LISTDIR, path=f"{d}/a").out))[0] == os.fsencode(f"{d}/a")


def test_paths_below_the_home(a):
    home = pwd.getpwuid(os.geteuid()).pw_dir
    name = tempfile.mkdtemp(prefix=".forkd-test-", dir=home)
    try:
        base = os.path.basename(name)
        assert write(a, f"~/{base}/sub/f", b"x").code == 0
        assert a.run(kind=READ, path=f"{base}/sub/f").out == b"x", "a relative path"
        assert list(records(a.run(kind=STAT, path=f"~/{base}/sub/f").out)) == [os.fsencode(f"{name}/sub/f")]
        assert a.run(kind=MOVE, path=f"~/{base}/sub/f", path2=f"{base}/g").code == 0
        assert list(records(a.run(kind=LISTDIR, path="~").out))[0] == os.fsencode(home)
        assert a.run(["pwd"], cwd=f"{base}/sub").out == a.run(["pwd"], cwd=f"~/{base}/sub").out == os.fsencode(f"{name}/sub\n")
        fails(a, errno.ENOENT, kind=STAT, path="~other/x")
    finally:
        shutil.rmtree(name)


@folder
def test_write_in_place(a, d):
    path = f"{d}/f"
    assert write(a, path, b"longer", flags=IN_PLACE, mode=0o640).code == 0
    before = os.stat(path)
    assert stat.S_IMODE(before.st_mode) == 0o640
    assert write(a, path, b"short", flags=IN_PLACE).code == 0
    assert open(path, "rb").read() == b"short" and os.stat(path).st_ino == before.st_ino
    fails(a, errno.EEXIST, kind=WRITE, path=path, flags=IN_PLACE | EXCLUSIVE)


@folder
def test_write_as_a_user(a, d):
    os.chmod(d, 0o777)
    for flags in 0, IN_PLACE:
        path = f"{d}/{flags}/new/f"
        assert write(a, path, b"x", user="daemon", flags=flags).code == 0
        for each in path, os.path.dirname(path), f"{d}/{flags}":
            assert (os.stat(each).st_uid, os.stat(each).st_gid) == (1, 1), each


@folder
def test_mkdir(a, d):
    assert a.run(kind=MKDIR, path=f"{d}/a", mode=0o2775).code == 0
    assert stat.S_IMODE(os.stat(f"{d}/a").st_mode) == 0o2775
    fails(a, errno.EEXIST, kind=MKDIR, path=f"{d}/a")
    fails(a, errno.ENOENT, kind=MKDIR, path=f"{d}/x/y/z")
    for _ in range(2):
        assert a.run(kind=MKDIR, path=f"{d}/x/y/z", flags=RECURSIVE).code == 0
    assert stat.S_IMODE(os.stat(f"{d}/x/y/z").st_mode) == 0o755
    open(f"{d}/f", "w").close()
    fails(a, errno.EEXIST, kind=MKDIR, path=f"{d}/f", flags=RECURSIVE)


@folder
def test_move(a, d):
    open(f"{d}/f", "w").write("x")
    assert a.run(kind=MOVE, path=f"{d}/f", path2=f"{d}/new/g").code == 0
    assert open(f"{d}/new/g").read() == "x" and not os.path.exists(f"{d}/f")
    fails(a, errno.ENOENT, kind=MOVE, path=f"{d}/none", path2=f"{d}/h")
    if os.stat("/dev/shm").st_dev == os.stat(d).st_dev:
        raise AssertionError("needs a second file system at /dev/shm")
    far = tempfile.mkdtemp(dir="/dev/shm")
    try:
        os.symlink("g", f"{d}/new/l")
        os.mkdir(f"{d}/new/s")
        os.chmod(f"{d}/new/g", 0o640)
        os.chown(f"{d}/new/g", 1, 1)
        assert a.run(kind=MOVE, path=f"{d}/new", path2=f"{far}/t").code == 0
        assert sorted(os.listdir(f"{far}/t")) == ["g", "l", "s"] and os.readlink(f"{far}/t/l") == "g"
        s = os.stat(f"{far}/t/g")
        assert (stat.S_IMODE(s.st_mode), s.st_uid) == (0o640, 1) and not os.path.exists(f"{d}/new")
    finally:
        shutil.rmtree(far)


@folder
def test_remove(a, d):
    os.makedirs(f"{d}/t/a/b")
    open(f"{d}/t/a/f", "w").close()
    open(f"{d}/safe", "w").close()
    os.symlink(d, f"{d}/t/a/link")
    fails(a, errno.ENOTEMPTY, kind=REMOVE, path=f"{d}/t")
    assert a.run(kind=REMOVE, path=f"{d}/t", flags=RECURSIVE).code == 0
    assert os.listdir(d) == ["safe"], "a link was followed, or something is left"
    os.symlink(d, f"{d}/l")
    assert a.run(kind=REMOVE, path=f"{d}/l", flags=RECURSIVE).code == 0
    assert os.listdir(d) == ["safe"]
    fails(a, errno.ENOENT, kind=REMOVE, path=f"{d}/none", flags=RECURSIVE)
    fails(a, errno.EACCES, kind=REMOVE, path=f"{d}/safe", user="daemon")
    assert a.run(kind=REMOVE, path=f"{d}/safe").code == 0 and os.listdir(d) == []


@folder
def test_chmod(a, d):
    os.makedirs(f"{d}/t/s")
    open(f"{d}/t/f", "w").close()
    open(f"{d}/out", "w").close()
    os.chmod(f"{d}/out", 0o600)
    os.symlink(f"{d}/out", f"{d}/t/l")
    mode = lambda p: stat.S_IMODE(os.stat(f"{d}/{p}").st_mode)
    assert a.run(kind=CHMOD, path=f"{d}/t/f", mode=0o640).code == 0 and mode("t/f") == 0o640
    assert a.run(kind=CHMOD, path=f"{d}/t", mode=0o711, flags=RECURSIVE).code == 0
    assert (mode("t"), mode("t/s"), mode("t/f"), mode("out")) == (0o711, 0o711, 0o711, 0o600)
    fails(a, errno.EPERM, kind=CHMOD, path=f"{d}/t/f", mode=0o777, user="daemon")


def listen(family, address, serve):
    s = socket.socket(family)
    s.bind((address, 0))
    s.listen(1)

    def run():
        c, _ = s.accept()
        s.close()
        with c:
            serve(c)
    threading.Thread(target=run, daemon=True).start()
    return s.getsockname()[1]


def until_end(c):
    data = bytearray()
    while block := c.recv(65536):
        data += block
    return bytes(data)


def connected(a, ident):
    """The first output reports that the connection is open."""
    payload = a.expect(OUTPUT, ident).payload
    return payload[0] == 2 and payload[9:] == b"connected\n"


def test_tcp_half_close_by_us(a):
    port = listen(socket.AF_INET, "127.0.0.1", lambda c: c.sendall(until_end(c)[::-1]))
    data = os.urandom(2_000_000)
    ident = a.start(kind=CONNECT, port=port)
    assert connected(a, ident)
    assert a.feed(ident, 0, data) == []
    a.send(INPUT_EOF, ident, b"\0")
    d = a.finish(ident, offsets=(0, 10, 0))
    assert d.code == 0 and d.out == data[::-1]


def test_tcp_half_close_by_peer(a):
    got = []

    def serve(c):
        c.sendall(b"bye")
        c.shutdown(socket.SHUT_WR)
        got.append(until_end(c))
    ident = a.start(kind=CONNECT, port=listen(socket.AF_INET, "127.0.0.1", serve), path="localhost")
    # Streams 1 and 2 arrive in any order.
    seen = sorted((f.type, f.payload[0], f.payload[9:]) for f in (a.next() for _ in range(3)))
    assert seen == [(OUTPUT, 1, b"bye"), (OUTPUT, 2, b"connected\n"), (OUTPUT_EOF, 1, b"")], seen
    a.send(INPUT, ident, b"\0still")
    a.send(INPUT_EOF, ident, b"\0")
    assert a.finish(ident, offsets=(3, 10, 0)).code == 0
    time.sleep(0.1)
    assert got == [b"still"]


def test_tcp_v6_and_refused(a):
    if socket.has_ipv6 and os.path.exists("/proc/net/if_inet6") and "lo" in open("/proc/net/if_inet6").read():
        port = listen(socket.AF_INET6, "::1", lambda c: c.sendall(b"six"))
        ident = a.start(kind=CONNECT, port=port)  # 127.0.0.1 refuses, ::1 answers
        a.send(INPUT_EOF, ident, b"\0")
        assert a.finish(ident).out == b"six"
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    fails(a, errno.ECONNREFUSED, kind=CONNECT, port=s.getsockname()[1])
    fails(a, errno.ENOENT, kind=CONNECT, port=80, path="no-such-name")
