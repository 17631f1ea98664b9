"""Behaviour of the Python kernel. FORKD_PYTHON names the interpreter to run (default python3)."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import python_case  # noqa: E402
from python_case import ONE, TWO  # noqa: E402


class PythonKernel(python_case.PythonCase):
    # Values

    def test_greeting_has_the_version(self):
        self.assertRegex(self.k.version, r"^python 3\.\d+\.\d+")

    def test_expression_has_text_and_json(self):
        value = self.k.eval("{'a': [1, 2.5, None, 'ü']}")
        self.assertEqual((value.status, value.text), (0, "{'a': [1, 2.5, None, 'ü']}"))
        self.assertEqual(value.json, {"a": [1, 2.5, None, "ü"]})

    def test_statements_then_expression(self):
        self.assertEqual(self.k.eval("a = 20\nb = 22\na + b").json, 42)

    def test_expression_over_several_lines(self):
        self.assertEqual(self.k.eval("[\n 1,\n 2,\n]").json, [1, 2])

    def test_statement_and_none_have_no_value(self):
        self.assertEqual([self.k.eval(c).status for c in ("x = 1", "None", "", "# nothing\n")], [1, 1, 1, 1])

    def test_state_persists_and_underscore_is_the_last_value(self):
        self.k.eval("x = 5")
        self.k.eval("x * 2")
        self.k.eval("x = 6")
        self.assertEqual(self.k.eval("_ + x").json, 16)

    def test_values_without_json(self):
        for code in ("float('nan')", "object()", "{(1, 2): 3}", "b'x'", "[float('inf')]"):
            value = self.k.eval(code)
            self.assertEqual((value.status, value.form), (0, ""), code)

    def test_objects_with_tolist_and_item(self):
        self.k.eval("class L:\n def tolist(self): return [1]\nclass I:\n def item(self): return 7\n")
        self.assertEqual(self.k.eval("[L(), I()]").json, [[1], 7])

    def test_numpy_arrays_and_scalars(self):
        if not self.has("numpy"):
            self.skipTest("no numpy")
        value = self.k.eval("import numpy\n[numpy.arange(4).reshape(2, 2), numpy.float32(0.5), numpy.int64(3), numpy.bool_(1)]")
        self.assertEqual(value.json, [[[0, 1], [2, 3]], 0.5, 3, True])

    def test_long_text_is_truncated_and_long_json_omitted(self):
        value = self.k.eval("'ü' * (5 << 20)")
        self.assertEqual((value.status, value.form, value.text[-1]), (0, "", "…"))
        self.assertLessEqual(len(value.text.encode()), 4 << 20)
        self.assertGreater(len(value.text.encode()), (4 << 20) - 4)
        self.assertEqual((value.whole, value.json_cut), ((10 << 20) + 2, True))

    def test_flags_say_what_is_cut(self):
        value = self.k.eval("'x' * 9")
        self.assertEqual((value.whole, value.json_cut), (None, False))
        self.assertEqual(self.k.eval("object()").json_cut, False)  # has no JSON form
        self.assertEqual(self.k.eval("x = []\nfor _ in range(100000): x = [x]\nclass R:\n"
                                     " def tolist(self): return x\nR()").json_cut, True)
        value = self.k.eval("raise ValueError('x' * 70000)")
        self.assertEqual((value.status, len(value.json["value"]), value.json_cut, value.whole), (2, 65536, True, None))
        value = self.k.eval("raise ValueError('x' * (5 << 20))")
        self.assertEqual((value.status, value.text[-1], value.json_cut), (2, "…", True))
        self.assertGreater(value.whole, 5 << 20)
        if self.has("numpy"):
            self.assertEqual(self.k.eval("import numpy\nnumpy.zeros(3 << 20)").json_cut, True)

    def test_lone_surrogate(self):
        value = self.k.eval("type('S', (), {'__repr__': lambda s: chr(0xd800)})()")
        self.assertEqual((value.status, value.text), (0, "\\ud800"))

    # Errors

    def test_traceback_shows_user_frames_and_lines_only(self):
        self.k.eval("# \x0c comment\ndef f(n):\n    return 1 / n\n")
        value = self.k.eval("x = 1\nf(0)\n")
        self.assertEqual(value.status, 2)
        self.assertEqual(value.json, {"name": "ZeroDivisionError", "value": "division by zero", "frames": [
            {"file": "<eval-2>", "line": 2, "function": "<module>", "text": "f(0)"},
            {"file": "<eval-1>", "line": 3, "function": "f", "text": "return 1 / n"}]})
        lines = value.text.splitlines()
        self.assertEqual(lines[0], "Traceback (most recent call last):")
        self.assertEqual(lines[1:3], ['  File "<eval-2>", line 2, in <module>', "    f(0)"])
        self.assertIn('  File "<eval-1>", line 3, in f\n    return 1 / n\n', value.text)
        self.assertNotIn("kernel.py", value.text)

    def test_syntax_error(self):
        for code in ("a b", "x = 1\na b"):
            value = self.k.eval(code)
            self.assertEqual((value.status, value.json["name"]), (2, "SyntaxError"))
            self.assertRegex(value.text, r'^  File "<eval-\d>", line \d\n    a b\n')
            self.assertNotIn("kernel.py", value.text)
            self.assertNotIn("During handling", value.text)

    def test_exit_is_an_error(self):
        for code in ("exit(3)", "import sys\nsys.exit(3)", "raise SystemExit(3)"):
            value = self.k.eval(code)
            self.assertEqual((value.status, value.json["name"], value.json["value"]), (2, "SystemExit", "3"))
        self.alive()

    def test_failing_repr_is_an_error(self):
        self.k.eval("class B:\n def __repr__(self): raise ValueError('no')\n")
        value = self.k.eval("B()").json
        self.assertEqual((value["name"], value["value"]), ("ValueError", "no"))

    def test_failing_str_of_an_exception(self):
        self.k.eval("class E(Exception):\n def __str__(self): raise ValueError\n")
        self.assertEqual(self.k.eval("raise E()").json["name"], "E")

    def test_deep_recursion(self):
        self.assertEqual(self.k.eval("def f(): f()\nf()").json["name"], "RecursionError")
        self.assertEqual(self.k.eval("l = []\nfor _i in range(10**5): l = [l]\nl").json["name"], "RecursionError")
        self.alive()

    def test_memory_error(self):
        self.assertEqual(self.k.eval("bytearray(1 << 62)").json["name"], "MemoryError")
        self.alive()

    def test_null_byte_and_bad_utf8(self):
        self.assertEqual(self.k.eval("1\0").status, 2)
        self.assertEqual(self.k.ask(b"E", b"\7\0default\xff")[0], b"Z")
        self.alive()

    # Output

    def test_output_is_written_before_the_value(self):
        self.k.eval("import sys, os\nprint('a', end='')\nprint('b', end='', file=sys.stderr)")
        self.assertEqual((self.k.out.take(), self.k.err.take()), ("a", "b"))

    def test_output_appears_line_by_line(self):
        ident = self.k.start("import os, time\nprint('line')\nwhile not os.path.exists(%r): time.sleep(.01)" % self.gate())
        self.k.out.wait_for("line\n")
        self.open_gate()
        self.assertEqual(self.k.value(ident).status, 1)

    def test_closed_stdout(self):
        self.k.eval("import sys\nsys.stdout.close()\nsys.stderr.close()")
        self.k.eval("print('again')\nprint('err', file=sys.stderr)")
        self.assertEqual((self.k.out.take(), self.k.err.take()), ("again\n", "err\n"))

    def test_replaced_stdout(self):
        self.k.eval("import sys, io\nsys.stdout = s = io.StringIO()\nprint('x')")
        self.assertEqual(self.k.eval("s.getvalue()").json, "x\n")
        self.k.eval("sys.stdout = None")
        self.k.eval("class W:\n def flush(self): 1/0\nsys.stdout = W()")
        self.alive()
        self.k.eval("sys.stdout = sys.__stdout__\nprint('back')")
        self.assertEqual(self.k.out.take(), "back\n")

    def test_huge_output(self):
        self.k.eval("print('x' * (8 << 20))")
        self.assertEqual(len(self.k.out.take()), (8 << 20) + 1)

    # Contexts

    def test_contexts_are_separate_and_can_be_dropped(self):
        self.k.eval("x = 1")
        self.assertEqual(self.k.eval("x", "a.b").json["name"], "NameError")
        self.k.eval("x = 2", "a.b")
        self.assertEqual((self.k.eval("x").json, self.k.eval("x", "a.b").json), (1, 2))
        self.assertEqual(self.k.contexts(), ["default", "a.b"])
        self.assertEqual(self.k.drop("a.b"), (b"A", b""))
        self.assertEqual(self.k.eval("x", "a.b").json["name"], "NameError")
        self.assertEqual(self.k.drop("default")[0], b"Z")
        self.assertEqual(self.k.drop("never")[0], b"A")

    def test_default_context_is_main(self):
        self.assertEqual(self.k.eval("__name__").json, "__main__")
        self.assertIs(self.k.eval("import sys\nsys.modules['__main__'].__dict__ is globals()").json, True)

    def test_pickle_and_dataclasses_in_every_context(self):
        code = "import pickle, dataclasses\n@dataclasses.dataclass\nclass P:\n    x: 'int'\npickle.loads(pickle.dumps(P(3))).x"
        for context in ("default", "other", "with.dot", "ünï code"):
            self.assertEqual(self.k.eval(code, context).json, 3, context)

    def test_future_statements_persist(self):
        self.k.eval("from __future__ import annotations\nx = 1")
        self.assertEqual(self.k.eval("def f(a: nope): pass\nf.__annotations__['a']").json, "nope")

    def test_source_is_known_to_inspect(self):
        self.k.eval("def f():\n    return 1\n")
        self.assertEqual(self.k.eval("import inspect\ninspect.getsource(f)").json, "def f():\n    return 1\n")

    # Await, threads, processes

    def test_top_level_await(self):
        self.assertEqual(self.k.eval("import asyncio\nx = await asyncio.sleep(0, 4)\nx + 1").json, 5)
        self.assertEqual(self.k.eval("await asyncio.sleep(0, 6)").json, 6)
        value = self.k.eval("async def g():\n    1 / 0\nawait g()")
        self.assertEqual(value.json["name"], "ZeroDivisionError")
        self.assertTrue(value.text.splitlines()[1].startswith('  File "<eval-3>", line 3'), value.text)
        self.assertNotIn("asyncio", value.text)

    def test_tasks_persist_and_asyncio_run_works(self):
        self.k.eval("import asyncio\nt = asyncio.ensure_future(asyncio.sleep(0, 'done'))\nawait asyncio.sleep(0)")
        self.assertEqual(self.k.eval("asyncio.run(asyncio.sleep(0, 1))").json, 1)
        self.assertEqual(self.k.eval("await t").json, "done")

    def test_threads_run_between_evals(self):
        self.k.eval("import threading, os, time\ndef f():\n  while not os.path.exists(%r): time.sleep(.01)\n  print('thread')\n"
                    "threading.Thread(target=f).start()" % self.gate())
        self.open_gate()
        self.k.out.wait_for("thread\n")

    def test_forked_child_does_not_answer(self):
        self.assertEqual(self.k.eval("import os\npid = os.fork()\nif not pid: 1 / 0\npid > 0").json, True)
        self.assertEqual(self.k.eval("os.waitpid(pid, 0)[1] >> 8").json, 1)
        self.assertIn("ZeroDivisionError", self.k.err.take())
        self.k.eval("pid = os.fork()\nif not pid: print('child'); exit(7)")
        self.assertEqual(self.k.eval("os.waitpid(pid, 0)[1] >> 8").json, 7)
        self.assertEqual(self.k.out.take(), "child\n")

    def test_user_code_cannot_reach_the_control_stream(self):
        low = self.k.eval("import os\n[f for f in os.listdir('/proc/self/fd') if 2 < int(f) < 60 and "
                          "os.path.exists('/proc/self/fd/' + f) and 'socket' in os.readlink('/proc/self/fd/' + f)]")
        self.assertEqual(low.json, [])
        listing = self.k.eval("import subprocess\nsubprocess.run(['ls', '-l', '/proc/self/fd'], stdout=-1, close_fds=False)"
                              ".stdout.decode()")
        self.assertNotIn("socket", listing.text)

    # Interrupts

    def test_interrupt_of_a_loop(self):
        # The print is part of the loop: on a busy host, the interrupt may arrive before print returns.
        value = self.interrupted("first = True\nwhile True: first = first and print('go')")
        self.assertEqual((value.status, value.json["name"]), (3, "KeyboardInterrupt"))
        self.assertIn('File "<eval-1>", line 2', value.text)
        self.alive()

    def test_interrupt_shows_no_frame_of_the_kernel(self):
        for code in ("import time\nprint('go')\ntime.sleep(100)",
                     "import asyncio\nprint('go')\nawait asyncio.sleep(100)",
                     "try:\n  print('go')\n  while True: pass\nexcept KeyboardInterrupt: raise ValueError('x')",
                     "try:\n  print('go')\n  while True: pass\nexcept KeyboardInterrupt as e: raise ValueError('x') from e",
                     "class R:\n def __repr__(self):\n  print('go')\n  while True: pass\nR()"):
            value = self.interrupted(code, 0.05)
            self.assertIn(value.status, (2, 3))
            self.assertNotIn("kernel.py", value.text)
            self.assertNotIn("forkd_values.py", value.text)
        self.alive()

    def test_interrupt_of_sleep_await_repr_and_str(self):
        for code in ("import time\nprint('go')\ntime.sleep(100)",
                     "import asyncio\nprint('go')\nawait asyncio.sleep(100)",
                     "print('go')\nwhile True: await asyncio.sleep(0)",
                     "class R:\n def __repr__(self):\n  print('go')\n  while True: pass\nR()"):
            self.assertEqual(self.interrupted(code, 0.05).status, 3, code)
        code = "class E(Exception):\n def __str__(self):\n  print('go')\n  while True: pass\nraise E()"
        self.assertEqual(self.interrupted(code).json["name"], "E")
        self.alive()

    def test_interrupt_can_be_caught_and_repeated(self):
        code = "try:\n  print('go')\n  while True: pass\nexcept KeyboardInterrupt: print('caught')\nwhile True: pass"
        ident = self.k.start(code)
        self.k.out.wait_for("go\n")
        self.k.interrupt()
        self.k.out.wait_for("caught\n")
        self.k.interrupt()
        self.assertEqual(self.k.value(ident).status, 3)

    def test_interrupts_between_and_around_evals_do_no_harm(self):
        self.k.interrupt()
        self.alive()
        for n in range(300):
            ident = self.k.start("sum(range(%d))" % (n * 20))
            self.k.interrupt()
            value = self.k.value(ident)
            self.assertIn(value.status, (0, 3), value)
            self.k.interrupt()
        self.alive()
        self.assertEqual(self.k.err.take(), "")

    def test_replaced_handler_does_not_outlive_the_eval(self):
        self.k.eval("import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)")
        self.k.interrupt()
        self.alive()

    # After a fork

    def check_generator(self, code):
        one, again, two = (self.sequence(code, e) for e in (ONE, ONE, TWO))
        self.assertEqual(one, again)
        self.assertNotEqual(one, two)
        return one

    def test_random_is_reseeded(self):
        self.k.eval("import random")
        self.check_generator("[random.random() for _ in range(4)] + [random.gauss(0, 1)]")

    def test_numpy_is_reseeded_and_differs_from_random(self):
        if not self.has("numpy"):
            self.skipTest("no numpy")
        self.k.eval("import numpy.random, random\nnumpy.random.normal()")  # numpy keeps a second number for the next call
        self.assertNotEqual(self.sequence("numpy.random.normal()", ONE), self.sequence("numpy.random.normal()", TWO))
        self.k.eval("numpy.random.normal()")
        numbers = self.check_generator("numpy.random.random(4).tolist() + [numpy.random.normal()]")
        self.assertNotEqual(numbers[:4], self.sequence("[random.random() for _ in range(4)]", ONE))

    def test_numpy_with_another_bit_generator(self):
        if not self.has("numpy"):
            self.skipTest("no numpy")
        self.k.eval("import numpy\nnumpy.random.set_bit_generator(numpy.random.PCG64(1))")
        self.check_generator("numpy.random.random(4).tolist()")

    def test_openssl_gets_the_entropy(self):
        # The output cannot be predicted (OpenSSL mixes in the system's randomness), so the call is observed.
        self.k.eval("import ssl, _ssl\ngot = []\n_ssl.RAND_add = lambda *a: got.append(a)")
        self.assertEqual(self.sequence("got == [(bytes(range(64)), 64.0)]", ONE), True)

    def test_uuid_and_tempfile_state(self):
        self.k.eval("import uuid, tempfile, os\nuuid.uuid1()\nx = tempfile._get_candidate_names()")
        self.assertNotEqual(self.sequence("uuid.uuid1().node", ONE), self.sequence("uuid.uuid1().node", TWO))
        self.assertIs(self.k.eval("tempfile._get_candidate_names() is x").json, False)

    def test_modules_are_not_loaded_by_a_fork(self):
        self.k.eval("import sys\nbefore = set(sys.modules)")
        self.assertEqual(self.sequence("sorted(set(sys.modules) - before)", ONE), [])
        self.assertEqual(self.k.eval("[m for m in ('numpy', 'ssl', 'asyncio') if m in sys.modules]").json, [])

    def test_environment_is_updated(self):
        self.assertEqual(self.k.after_fork(ONE, ["FORKD_A=b=c", "FORKD_E="])[0], b"A")
        self.assertEqual(self.k.eval("import os\n[os.environ['FORKD_A'], os.environ['FORKD_E']]").json, ["b=c", ""])
        self.assertEqual(self.k.eval("import subprocess\nsubprocess.check_output('echo $FORKD_A', shell=True).decode()").json, "b=c\n")

    def test_callbacks_run_after_the_seeding(self):
        self.k.eval("import forkd, random\nseen = []\n@forkd.after_fork\ndef f(): seen.append(random.random()); print('cb', end='')")
        self.check_generator("seen[-1]")
        self.assertEqual(self.k.out.take(), "cb" * 3)

    def test_failures_are_reported(self):
        self.assertEqual(self.k.after_fork(b"short")[0], b"Z")
        self.k.eval("import forkd\nforkd.after_fork(lambda: 1 / 0)")
        self.assertEqual(self.k.after_fork(ONE), (b"Z", b"ZeroDivisionError: division by zero"))
        self.k.eval("forkd._callbacks[:] = [exit]")
        self.assertEqual(self.k.after_fork(ONE)[0], b"Z")
        self.assertEqual(self.k.ask(b"?")[0], b"Z")
        self.alive()

    def test_kernel_exits_when_the_control_stream_closes(self):
        self.k.eval("import threading, time\nthreading.Thread(target=time.sleep, args=(100,)).start()")
        self.k.sock.close()
        self.assertEqual(self.k.process.wait(5), 0)


if __name__ == "__main__":
    unittest.main()
