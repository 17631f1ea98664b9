"""Watching directories."""
import errno, os, shutil, signal, struct, subprocess, time

from client import *
from test_files import WATCH, fails, folder, records, write

NAMES = {b"s": "started", b"c": "create", b"w": "write", b"d": "remove", b"m": "rename", b"a": "chmod", b"o": "overflow",
         b"y": "sync"}


class Watch:
    """A watch and the events that it has reported."""

    def __init__(self, a, path, **k):
        self.a, self.data = a, bytearray()
        self.id = a.start(kind=WATCH, path=path, **k)
        assert self.next()[:2] == ("started", os.fsencode(path))

    def frame(self):
        f = self.a.next(20)
        assert f and f.id == self.id, f
        if f.type == OUTPUT and f.payload[0] == 1:
            self.data += f.payload[9:]
        return f

    def next(self):
        while True:
            texts, at = [], 1
            while len(texts) < 3 and len(self.data) >= at + 2:
                n = struct.unpack_from("<H", self.data, at)[0]
                if len(self.data) < at + 2 + n:
                    break
                texts.append(bytes(self.data[at + 2:at + 2 + n]))
                at += 2 + n
            if len(texts) == 3:
                change = NAMES[bytes(self.data[:1])]
                del self.data[:at]
                return change, *texts
            assert self.frame().type != EXIT, "the watch ended"

    def sync(self):
        """All events so far, without entries."""
        self.a.send(INPUT, self.id, b"\0x")
        out = []
        while (event := self.next())[0] != "sync":
            out.append(event)
        return out

    def changes(self):
        return [(change, path.decode()) for change, path, _, _ in self.sync()]

    def stop(self):
        self.a.send(INPUT_EOF, self.id, b"\0")
        while (f := self.frame()).type != EXIT:
            pass
        assert f.payload[:2] == b"\0\0", f
        self.a.send(FORGET, self.id)


@folder
def test_watch_events(a, d):
    os.mkdir(f"{d}/old")
    w = Watch(a, d)
    with open(f"{d}/f", "w") as f:
        f.write("x")
    os.chmod(f"{d}/f", 0o600)
    os.rename(f"{d}/f", f"{d}/g")
    os.unlink(f"{d}/g")
    os.rmdir(f"{d}/old")
    events = w.sync()
    assert [(c, p.decode(), f.decode()) for c, p, f, _ in events] == [
        ("create", "f", ""), ("write", "f", ""), ("chmod", "f", ""), ("rename", "f", ""), ("create", "g", "f"),
        ("remove", "g", ""), ("remove", "old", "")], events
    assert w.changes() == [], "a second look reports nothing twice"
    os.chmod(d, 0o700)
    assert w.changes() == [("chmod", "")]
    w.stop()


def changes_of_a_write(a, d, flags):
    w = Watch(a, d)
    other = a.start(kind=2, path=f"{d}/f", flags=flags)
    a.send(INPUT, other, b"\0content")
    a.send(INPUT_EOF, other, b"\0")
    seen = []
    while not any(f.type == EXIT for f in seen):
        f = a.next()
        assert f
        if f.id == w.id:
            w.data += f.payload[9:]
        else:
            seen.append(f)
    changes = w.changes()
    w.stop()
    return changes


@folder
def test_watch_sees_a_write_in_place(a, d):
    assert changes_of_a_write(a, d, IN_PLACE) == [("create", "f"), ("chmod", "f"), ("write", "f")]


@folder
def test_watch_sees_an_atomic_write_as_one_new_file(a, d):
    assert changes_of_a_write(a, d, 0) == [("create", "f")]
    assert changes_of_a_write(a, d, 0) == [("create", "f")], "the file is replaced"


@folder
def test_watch_entries(a, d):
    w = Watch(a, d, flags=ENTRIES)
    os.mkdir(f"{d}/dir")
    os.symlink("dir", f"{d}/l")
    os.rename(f"{d}/dir", f"{d}/other")
    events = {(c, p): e for c, p, _, e in w.sync()}
    assert records(events["create", b"other"])[os.fsencode(f"{d}/other")]["type"] == b"d"
    assert records(events["create", b"l"])[os.fsencode(f"{d}/l")]["target"] == b"dir"
    assert events["rename", b"dir"] == b"", "a path that is gone has no entry"
    w.stop()


@folder
def test_watch_without_recursion(a, d):
    os.mkdir(f"{d}/sub")
    w = Watch(a, d)
    open(f"{d}/sub/f", "w").close()
    os.mkdir(f"{d}/new")
    open(f"{d}/new/f", "w").close()
    assert w.changes() == [("create", "new")]
    w.stop()


@folder
def test_watch_finds_new_directories(a, d):
    os.makedirs(f"{d}/a/b")
    os.symlink("/", f"{d}/a/link")
    w = Watch(a, d, flags=RECURSIVE)
    open(f"{d}/a/b/f", "w").close()
    assert w.changes() == [("create", "a/b/f")]
    # Faster than the watch can follow: each level and file is reported once all the same.
    wanted = []
    for i in range(40):
        path = f"n{i}/x/y/z"
        os.makedirs(f"{d}/{path}")
        open(f"{d}/{path}/f", "w").close()
        wanted += [f"n{i}", f"n{i}/x", f"n{i}/x/y", path, f"{path}/f"]
    created = [p for c, p in w.changes() if c == "create"]
    assert sorted(created) == sorted(wanted), set(wanted) ^ set(created)
    open(f"{d}/n7/x/y/z/g", "w").close()
    assert w.changes() == [("create", "n7/x/y/z/g")]
    w.stop()


@folder
def test_watch_while_a_tree_changes(a, d):
    """What remains at the end was reported, each path once more often created than removed."""
    w = Watch(a, d, flags=RECURSIVE)
    script = """
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  mkdir -p $0/t$i/a/b; echo 1 > $0/t$i/a/f; echo 2 > $0/t$i/a/b/g
  rm $0/t$i/a/f; echo 3 > $0/t$i/a/f; mv $0/t$i/a $0/t$i/moved; echo 4 > $0/t$i/moved/b/h
  [ $((i % 2)) = 0 ] && rm -r $0/t$i
done; true"""
    subprocess.run(["sh", "-c", script, d], check=True, timeout=60)
    events = w.sync()
    known = {}
    for change, path, came_from, _ in events:
        assert change != "overflow"
        if change == "create":
            known[path] = True
            if came_from:
                for each in [k for k in known if k.startswith(came_from + b"/")]:
                    known[path + each[len(came_from):]] = known.pop(each)
        elif change == "remove":
            known.pop(path, None)
        elif change == "rename":
            known.pop(path, None)
    there = {os.fsencode(os.path.relpath(os.path.join(p, n), d)) for p, ds, fs in os.walk(d) for n in ds + fs}
    assert set(known) == there, set(known) ^ there
    w.stop()


@folder
def test_watch_follows_renamed_directories(a, d):
    os.makedirs(f"{d}/in/a/b")
    w = Watch(a, f"{d}/in", flags=RECURSIVE)
    os.rename(f"{d}/in/a", f"{d}/in/c")
    open(f"{d}/in/c/b/f", "w").close()
    assert w.changes() == [("rename", "a"), ("create", "c"), ("create", "c/b/f")]
    os.rename(f"{d}/in/c", f"{d}/out")
    assert w.changes() == [("rename", "c")]
    time.sleep(0.1)  # the second half of a rename may come within 10 ms; there is no event for its absence
    open(f"{d}/out/b/g", "w").close()
    assert w.changes() == [], "outside"
    os.rename(f"{d}/out", f"{d}/in/back")
    assert sorted(w.changes()) == [("create", p) for p in ("back", "back/b", "back/b/f", "back/b/g")]
    open(f"{d}/in/back/b/h", "w").close()
    assert w.changes() == [("create", "back/b/h")]
    w.stop()


@folder
def test_watch_ends_with_its_directory(a, d):
    for change in (os.rmdir, lambda p: os.rename(p, f"{d}/elsewhere")):
        os.mkdir(f"{d}/w")
        w = Watch(a, f"{d}/w")
        change(f"{d}/w")
        done = a.finish(w.id, offsets=(7 + len(f"{d}/w"), 0, 0))
        assert done.code == errno.ENOENT and b"removed or moved" in done.err, done
        a.send(FORGET, w.id)


@folder
def test_watch_refuses(a, d):
    open(f"{d}/f", "w").close()
    fails(a, errno.ENOENT, kind=WATCH, path=f"{d}/none")
    fails(a, errno.ENOTDIR, kind=WATCH, path=f"{d}/f")
    os.mkdir(f"{d}/closed", 0o700)
    fails(a, errno.EACCES, kind=WATCH, path=f"{d}/closed", user="daemon")
    os.makedirs(f"{d}/deep/" + "/".join(["x"] * 70))
    fails(a, errno.EOVERFLOW, kind=WATCH, path=f"{d}/deep", flags=RECURSIVE)
    w = Watch(a, f"{d}/closed", flags=RECURSIVE)
    os.makedirs(f"{d}/closed/" + "/".join(["x"] * 70))
    events = w.changes()
    assert [c for c, _ in events].count("overflow") == 1 and len(events) > 60, "a limit is reported"
    w.stop()


@folder
def test_watch_reports_an_overflow(a, d):
    """Without credit the watch blocks, and the queue of the kernel overflows."""
    os.mkdir(f"{d}/sub")
    ident = a.start(kind=WATCH, path=d, flags=RECURSIVE, credit=7 + len(d))
    f = a.expect(OUTPUT, ident)
    assert f.payload[9:10] == b"s"
    names = [f"{d}/sub/{'n' * 200}{i}" for i in range(4)]
    limit = int(open("/proc/sys/fs/inotify/max_queued_events").read())
    for i in range(limit + 4000):
        os.close(os.open(names[i % 4], os.O_CREAT))
        os.unlink(names[i % 4])
    os.makedirs(f"{d}/unseen/below")
    a.send(CREDIT, ident, struct.pack("<BI", 1, BIG))
    a.send(INPUT, ident, b"\0x")
    w = Watch.__new__(Watch)
    w.a, w.id, w.data = a, ident, bytearray()
    changes = []
    while (event := w.next())[0] != "sync":
        changes.append(event[:2])
    assert ("overflow", b"") in changes
    # Directories that it missed are watched now.
    open(f"{d}/unseen/below/f", "w").close()
    assert w.changes() == [("create", "unseen/below/f")]
    w.stop()


@folder
def test_watch_belongs_to_its_host(a, d):
    w = Watch(a, d)
    pid = struct.unpack("<I", fields_of_listing(a, w.id)[2][0])[0]
    a.hello()
    end = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
        time.sleep(0.01)  # the death of a process that is not our child has no event
    assert not os.path.exists(f"/proc/{pid}"), "the watch of the earlier host still runs"
    a.send(LIST, 99)
    assert a.expect(OK, 99)


def fields_of_listing(a, ident):
    a.send(LIST, 98)
    f = fields(a.expect(LISTING, 98).payload)
    assert struct.unpack("<I", f[1][0])[0] == ident
    a.expect(OK, 98)
    return f
