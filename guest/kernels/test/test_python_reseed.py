"""The signal that re-seeds the Python kernel, mostly during an eval, when the kernel cannot read messages."""
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import python_case  # noqa: E402
from python_case import ONE  # noqa: E402


class ReseedSignal(python_case.PythonCase):
    LOOP = "go = os.path.exists\nprint('go')\nwhile not go(%r): pass\n"

    def reseeded(self, before, after):
        """Runs `before`, sends the signal during the eval, runs `after` and returns its value."""
        ident = self.k.start("import os\n%s\n%s%s" % (before, self.LOOP % self.gate(), after))
        self.k.out.wait_for("go\n")
        self.k.reseed()
        time.sleep(0.05)
        self.open_gate()
        value = self.k.value(ident)
        self.k.out.take()
        self.assertEqual(self.k.err.take(), "")
        self.assertEqual(value.status, 0, value)
        return value.json

    def test_signal_reseeds_random_in_the_middle_of_an_eval(self):
        draw = "[random.random() for _ in range(4)]"
        plain = self.k.eval("import random\nrandom.seed(1)\n" + draw).json
        numbers = [self.reseeded("import random\nrandom.seed(1)", draw) for _ in range(2)]
        self.assertEqual(len({tuple(n) for n in (plain, *numbers)}), 3)

    def test_signal_reseeds_numpy_uuid_tempfile_and_openssl(self):
        if not self.has("numpy"):
            self.skipTest("no numpy")
        before = ("import numpy, uuid, tempfile, _ssl\nnumpy.random.seed(1)\nu = uuid.uuid1().node\n"
                  "x = tempfile._get_candidate_names()\ngot = []\n_ssl.RAND_add = lambda *a: got.append(a)\n"
                  "plain = numpy.random.RandomState(1).random(4).tolist()")
        after = ("[numpy.random.random(4).tolist() == plain, uuid.uuid1().node == u, "
                 "tempfile._get_candidate_names() is x, len(got[0][0])]")
        self.assertEqual(self.reseeded(before, after), [False, False, False, 64])

    def test_signal_does_not_run_callbacks(self):
        self.k.eval("import forkd\nseen = []\nforkd.after_fork(lambda: seen.append(1))")
        self.assertEqual(self.reseeded("", "seen"), [])
        self.assertEqual(self.sequence("seen", ONE), [1])

    def test_signal_while_numpy_is_locked_by_the_same_thread(self):
        if not self.has("numpy"):
            self.skipTest("no numpy")
        # shuffle holds the lock while it calls __setitem__; waiting for the lock would then block for ever.
        code = ("import numpy, os, time\nclass L(list):\n def __setitem__(self, i, v):\n  if not hasattr(self, 'done'):\n"
                "   self.done = 1\n   print('go')\n   time.sleep(.3)\n  list.__setitem__(self, i, v)\n"
                "l = L(range(9))\nnumpy.random.shuffle(l)\nsorted(l)")
        ident = self.k.start(code)
        self.k.out.wait_for("go\n")
        self.k.reseed()
        self.assertEqual(self.k.value(ident).json, list(range(9)))
        self.assertEqual(self.k.after_fork(ONE)[0], b"A")

    def test_signal_does_not_interrupt_system_calls(self):
        code = ("import time, os, select, subprocess, threading\nt = time.monotonic()\nprint('go')\ntime.sleep(.2)\n"
                "r, w = os.pipe()\nthreading.Timer(.2, os.write, (w, b'x')).start()\ngot = os.read(r, 1)\n"
                "select.select([r], [], [], .1)\nsubprocess.run(['sleep', '.1'], check=True)\n"
                "l = threading.Lock()\nl.acquire()\nl.acquire(timeout=.1)\n[got == b'x', time.monotonic() - t > .7]")
        ident = self.k.start(code)
        self.k.out.wait_for("go\n")
        for _ in range(80):
            self.k.reseed()
            time.sleep(0.01)
        self.assertEqual(self.k.value(ident).json, [True, True])
        self.assertEqual(self.k.err.take(), "")

    def test_signal_reaches_threads_while_the_main_thread_waits(self):
        code = ("import random, threading, time\nrandom.seed(1)\nstate = random.getstate()\ndef f():\n print('go')\n"
                " end = time.monotonic() + 10\n while random.getstate() == state and time.monotonic() < end: time.sleep(.01)\n"
                "t = threading.Thread(target=f)\nt.start()\nt.join()\nrandom.getstate() == state")
        ident = self.k.start(code)
        self.k.out.wait_for("go\n")
        self.k.reseed()
        self.assertIs(self.k.value(ident).json, False)

    def test_signals_at_rest_around_messages_and_with_interrupts_do_no_harm(self):
        self.k.eval("import numpy, random" if self.has("numpy") else "import random")
        for n in range(300):
            self.k.reseed()
            ident = self.k.start("sum(range(%d))" % (n * 20))
            self.k.reseed()
            if n % 3 == 0:
                self.k.interrupt()
            value = self.k.value(ident)
            self.assertIn(value.status, (0, 3) if n % 3 == 0 else (0,), value)
            self.k.reseed()
            self.assertEqual(self.k.after_fork(ONE), (b"A", b""))
        self.alive()
        self.assertEqual(self.k.err.take(), "")

    def test_interrupt_in_the_middle_of_a_reseeding_is_not_lost(self):
        self.k.eval("import random, time\nseed = random.seed\ndef slow(s):\n time.sleep(.3)\n seed(s)\nrandom.seed = slow")
        ident = self.k.start("print('go')\nwhile True: pass")
        self.k.out.wait_for("go\n")
        self.k.reseed()
        time.sleep(0.1)
        self.k.interrupt()
        value = self.k.value(ident)
        self.assertEqual(value.status, 3)
        self.assertNotIn("in slow", value.text)

    def test_signal_in_the_middle_of_a_reseeding_restarts_it(self):
        self.k.eval("import random, time\nseed = random.seed\nseen = []\ndef slow(s):\n seen.append(s)\n time.sleep(.2)\n"
                    " seed(s)\nrandom.seed = slow")
        ident = self.k.send(b"R", b"\x40\0" + ONE)
        time.sleep(0.1)
        self.k.reseed()
        self.assertEqual(self.k.answer(ident)[0], b"A")
        self.assertEqual(self.k.eval("[len(seen), seen[0] == seen[1]]").json, [2, False])

    def test_failing_generator_does_not_reach_the_code(self):
        self.k.eval("import random\ndef bad(s): raise ValueError\nrandom.seed = bad")
        self.assertEqual(self.reseeded("", "1"), 1)
        self.assertEqual(self.k.after_fork(ONE)[0], b"Z")

    def test_replaced_reseed_handler_does_not_outlive_the_eval(self):
        self.k.eval("import signal\nsignal.signal(41, signal.SIG_DFL)")
        self.k.reseed()
        self.alive()


if __name__ == "__main__":
    unittest.main()
