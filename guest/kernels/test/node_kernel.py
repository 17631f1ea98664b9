"""A Node kernel for each test. FORKD_NODE names the node to run (default node). Run `make` first."""
import os
import shlex
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from driver import ROOT, Kernel  # noqa: E402

NODE = shlex.split(os.environ.get("FORKD_NODE", "node"))
COMMAND = NODE + ["--no-force-async-hooks-checks", ROOT + "/node/kernel.cjs"]


class NodeKernel(unittest.TestCase):
    env = {}

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.k = Kernel(COMMAND, self.env, self.directory.name)
        self.addCleanup(self.k.close)

    def interrupted(self, code):
        ident = self.k.start(code)
        self.k.out.wait_for("go\n")
        time.sleep(0.05)  # for code that prints before the part to interrupt
        self.k.interrupt()
        value = self.k.value(ident)
        self.k.out.take()
        return value

    def alive(self):
        self.assertEqual(self.k.eval("40 + 2").text, "42")
        self.assertEqual(self.k.eval("await 41 + 1").text, "42")
