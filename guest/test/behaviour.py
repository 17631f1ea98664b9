"""Behaviour of the real agent over a socket: python3 behaviour.py AGENT [name…]. Stops at the first failure."""
import sys, time

import test_files
import test_limits
import test_link
import test_process
import test_streams
import test_watch
from client import POWEROFF, serve


def main():
    binary, wanted = sys.argv[1], sys.argv[2:]
    modules = (test_process, test_streams, test_files, test_watch, test_link, test_limits)
    cases = [(n, f) for m in modules for n, f in vars(m).items() if n.startswith("test_") and callable(f)]
    assert len(cases) > 60, "some tests were not found"
    for name, case in cases:
        if wanted and name not in wanted:
            continue
        child, agent = serve(binary)
        agent.child = child
        begin = time.monotonic()
        try:
            agent.hello()
            case(agent)
            if child.poll() is None:
                agent.send(POWEROFF)
                assert child.wait(10) == 0, f"the agent exited with {child.returncode}"
        except BaseException:
            print(f"FAILED {name}", flush=True)
            raise
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
            agent.sock.close()
        print(f"ok {name} ({(time.monotonic() - begin) * 1000:.0f} ms)", flush=True)


main()
