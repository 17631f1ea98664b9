"""Shared by the tests of the Python kernel. FORKD_PYTHON names the interpreter to run (default python3)."""
import os
import shlex
import tempfile
import time
import unittest

from driver import ROOT, Kernel

COMMAND = shlex.split(os.environ.get("FORKD_PYTHON", "python3")) + [ROOT + "/python/kernel.py"]
ONE, TWO = bytes(range(64)), bytes(range(1, 65))


class PythonCase(unittest.TestCase):
    def setUp(self):
        self.k = Kernel(COMMAND)
        self.addCleanup(self.k.close)

    def has(self, module):
        return self.k.eval("import importlib.util\nimportlib.util.find_spec(%r) is not None" % module).json

    def interrupted(self, code, after=0.0):
        """Starts code that prints `go`, interrupts it and returns its value."""
        ident = self.k.start(code)
        self.k.out.wait_for("go\n")
        time.sleep(after)
        self.k.interrupt()
        value = self.k.value(ident)
        self.k.out.take()
        return value

    def alive(self):
        self.assertEqual(self.k.eval("40 + 2").text, "42")

    def gate(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        return self.directory.name + "/gate"

    def open_gate(self):
        open(self.directory.name + "/gate", "w").close()

    def sequence(self, code, entropy):
        self.assertEqual(self.k.after_fork(entropy), (b"A", b""))
        return self.k.eval(code).json
