"""Commands: start, exit, signals, environment, user, terminal."""
import errno, os, signal, struct, tempfile, time

from client import *


def refused(agent, code, word, *args, **k):
    """The start must fail with this errno and a message that names the step."""
    try:
        agent.start(*args, **k)
    except OSError as e:
        assert e.errno == code, f"errno {e.errno} ({e}), wanted {code}"
        assert word in e.strerror, f"'{e.strerror}' does not say '{word}'"
        return
    raise AssertionError("the start was not refused")


def test_output_and_exit_code(a):
    d = a.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (d.out, d.err, d.how, d.code, d.timed_out) == (b"out\n", b"err\n", 0, 3, 0), d
    assert sorted(d.eof) == [1, 2], "EOF of both streams comes before EXIT"


def test_stdin(a):
    ident = a.start(["cat"], flags=STDIN)
    a.send(INPUT, ident, b"\0one ")
    a.send(INPUT, ident, b"\0two")
    a.send(INPUT_EOF, ident, b"\0")
    d = a.finish(ident)
    assert (d.out, d.code) == (b"one two", 0)


def test_stdin_closed_without_flag(a):
    assert a.run(["sh", "-c", "readlink /proc/self/fd/0"]).out == b"/dev/null\n"


def test_large_stdin_with_window(a):
    data = os.urandom(3_000_000)
    ident = a.start(["sha256sum"], flags=STDIN)
    a.feed(ident, 0, data)
    a.send(INPUT_EOF, ident, b"\0")
    import hashlib
    assert a.finish(ident).out.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_stdin_without_reader(a):
    ident = a.start(["sh", "-c", "exec 0<&-; sleep 0.3"], flags=STDIN)
    time.sleep(0.1)
    a.feed(ident, 0, bytes(200_000))  # does not stall: unread input counts as consumed
    assert a.finish(ident).code == 0


def test_killed_by_signal(a):
    ident = a.start(["sleep", "100"])
    a.send(SIGNAL, ident, bytes([signal.SIGTERM, 0]))
    d = a.finish(ident)
    assert (d.how, d.code) == (1, signal.SIGTERM)
    a.send(SIGNAL, ident, bytes([9, 0]))  # already exited: no effect
    a.send(PING, 5)
    a.expect(OK, 5)


def test_signal_scope(a):
    script = 'trap "echo leader" USR1; (trap "echo child; exit" USR1; echo ready; while :; do sleep 0.05; done) & while kill -0 $!; do wait; done 2>/dev/null'
    ident = a.start(["bash", "-c", script])
    assert a.expect(OUTPUT, ident).payload[9:] == b"ready\n"
    a.send(SIGNAL, ident, bytes([signal.SIGUSR1, 1]))
    assert a.expect(OUTPUT, ident).payload[9:] == b"leader\n"
    assert a.next(0.3) is None, "only the leader gets it"
    a.send(SIGNAL, ident, bytes([signal.SIGUSR1, 0]))
    assert b"child" in a.finish(ident, offsets=(13, 0, 0)).out


def test_group_kill(a):
    ident = a.start(["bash", "-c", "sleep 1000 & echo $!; wait"])
    pid = int(a.expect(OUTPUT, ident).payload[9:])
    os.kill(pid, 0)
    a.send(SIGNAL, ident, bytes([9, 0]))
    a.finish(ident, offsets=(len(str(pid)) + 1, 0, 0))
    for _ in range(50):
        try:
            if open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] == "Z":
                return
        except FileNotFoundError:
            return
        time.sleep(0.02)
    raise AssertionError("the grandchild lives")


def test_timeout(a):
    begin = time.monotonic()
    d = a.run(["bash", "-c", "echo x; sleep 100 & wait"], timeout=300)
    took = time.monotonic() - begin
    assert (d.out, d.how, d.code, d.timed_out) == (b"x\n", 1, 9, 1)
    assert 0.25 < took < 3, took


def test_no_timeout_when_quick(a):
    d = a.run(["true"], timeout=200)
    assert d.timed_out == 0 and d.code == 0
    time.sleep(0.4)
    a.send(PING, 1)
    a.expect(OK, 1)


def test_environment(a):
    d = a.run(["env"], env=["A=1", "LANG=x", "A=2", "EMPTY="])
    env = dict(l.split("=", 1) for l in d.out.decode().splitlines())
    assert env == {"A": "2", "LANG": "x", "EMPTY": "", "HOME": "/root", "USER": "root", "LOGNAME": "root",
                   "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, env


def test_path_of_the_environment(a):
    with tempfile.TemporaryDirectory() as d:
        os.chmod(d, 0o755)
        with open(f"{d}/tool", "w") as f:
            f.write("#!/bin/sh\necho found\n")
        os.chmod(f"{d}/tool", 0o755)
        assert a.run(["tool"], env=[f"PATH=/nowhere:{d}"]).out == b"found\n"
        refused(a, errno.ENOENT, "exec", ["tool"])
        os.chmod(f"{d}/tool", 0o644)
        refused(a, errno.EACCES, "exec", ["tool"], env=[f"PATH={d}:/bin"])


def test_cwd_and_umask(a):
    assert a.run(["sh", "-c", "pwd; umask"], cwd="/usr/lib").out == b"/usr/lib\n0022\n"
    assert a.run(["pwd"]).out == b"/root\n"


def test_user(a):
    d = a.run(["sh", "-c", "id -un; id -gn; pwd; echo $HOME $USER"], user="daemon")
    assert d.out == b"daemon\ndaemon\n/usr/sbin\n/usr/sbin daemon\n", d
    assert a.run(["sh", "-c", "id -u; id -g"], user="daemon:mail").out == b"1\n8\n"
    assert a.run(["sh", "-c", "id -u; id -g; pwd"], user="4242:4343").out == b"4242\n4343\n/\n"
    assert a.run(["id", "-G"], user="daemon").out == b"1\n"


def test_failed_starts(a):
    refused(a, errno.EINVAL, "user", ["true"], user="nobody-here")
    refused(a, errno.EINVAL, "user", ["true"], user="daemon:no-group")
    refused(a, errno.ENOENT, "cwd", ["true"], cwd="/no/where")
    refused(a, errno.ENOENT, "exec", ["/no/program"])
    refused(a, errno.EACCES, "exec", ["/etc/passwd"])
    refused(a, errno.EACCES, "cwd", ["true"], user="daemon", cwd="/root")
    refused(a, errno.EINVAL, "argv", [])
    refused(a, errno.EINVAL, "kind", ["x"], kind=99)
    a.send(LIST, 77)
    a.expect(OK, 77)  # the failed starts left nothing behind


def test_id_in_use(a):
    ident = a.start(["sleep", "5"])
    a.send(START, ident, start_payload(["true"]))
    assert struct.unpack("<I", fields(a.expect(ERROR, ident).payload)[1][0])[0] == errno.EEXIST
    a.send(START, 0, start_payload(["true"]))
    assert struct.unpack("<I", fields(a.expect(ERROR, 0).payload)[1][0])[0] == errno.EINVAL


def test_clean_child(a):
    d = a.run(["sh", "-c", "ls -l /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign)' /proc/self/status; ps -o pid=,pgid=,sid= -p $$"])
    lines = d.out.decode().splitlines()
    assert lines[0] == "5", d  # total, 0, 1, 2 and the directory itself
    assert lines[1].split()[1] == "0" * 16 and lines[2].split()[1] == "0" * 16, d
    assert len(set(lines[3].split())) == 1, "leader of a session and of a group"


def test_exit_reports_use(a):
    ident = a.start(["sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"])
    user, system, rss = struct.unpack("<QQQ", a.finish(ident).frames[-1].payload[4:])
    assert user > 20_000 and 500 < rss < 1_000_000, (user, system, rss)


def test_pty(a):
    ident = a.start(["bash", "-c", "stty size; tty; test -t 0 -a -t 1 -a -t 2 && echo all; echo $TERM; read x; echo got $x; stty size; cat"],
                    flags=PTY | STDIN, size=(33, 101))
    seen = b""
    while b"xterm-256color\r\n" not in seen:
        seen += a.expect(OUTPUT, ident).payload[9:]
    assert b"33 101\r\n/dev/pts/" in seen and b"all\r\n" in seen, seen
    a.send(RESIZE, ident, struct.pack("<HH", 44, 120))
    a.send(INPUT, ident, b"\0word\n")
    while b"44 120\r\n" not in seen:
        seen += a.expect(OUTPUT, ident).payload[9:]
    assert b"got word\r\n" in seen
    time.sleep(0.1)
    a.send(INPUT_EOF, ident, b"\0")  # typed: cat ends
    d = a.finish(ident, offsets=(len(seen), 0, 0))
    assert (d.how, d.code) == (0, 0), d


def test_pty_interrupt(a):
    ident = a.start(["sleep", "100"], flags=PTY)
    time.sleep(0.1)
    a.send(INPUT, ident, b"\0\x03")
    d = a.finish(ident)
    assert (d.how, d.code) == (1, signal.SIGINT) and b"^C" in d.out


def test_pty_large_output(a):
    d = a.run(["bash", "-c", "stty -onlcr; seq 1 100000"], flags=PTY)
    assert d.out == b"".join(b"%d\n" % i for i in range(1, 100001))
