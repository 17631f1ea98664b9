"""Magics, contexts and variables of the Python kernel."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import python_case  # noqa: E402


class Magics(python_case.PythonCase):
    def output(self, code):
        value = self.k.eval(code)
        self.assertIn(value.status, (0, 1), value)
        return self.k.out.take()

    def test_commands_write_to_the_output(self):
        self.assertEqual(self.output("x = 'world'\n!echo hello $x {1 + 2} $$HOME | tr a-z A-Z"), "HELLO WORLD 3 %s\n"
                         % os.environ["HOME"].upper())
        self.assertEqual(self.output("for i in range(2):\n    !echo {i}"), "0\n1\n")
        self.assertEqual(self.output("!echo a \\\n  b\nprint(1)"), "a b\n1\n")
        self.assertEqual(self.k.eval("!exit 3\n_exit_code").json, 3)

    def test_the_output_of_a_command_can_be_assigned(self):
        self.assertEqual(self.k.eval("lines = !printf 'a\\nb\\n'\nlines, lines.n, lines.s").json,
                         [["a", "b"], "a\nb", "a b"])

    def test_strings_comments_and_brackets_are_not_touched(self):
        code = 's = """\n!a\n%%b\n"""\nt = (5\n% 3)\n# !c\nu = "!d" \\\n  "%e"\n'
        self.assertEqual(self.k.eval(code + "s, t, u").json, ["\n!a\n%%b\n", 2, "!d%e"])
        self.assertEqual(self.k.eval(code + "!true\ns, t, u").json, ["\n!a\n%%b\n", 2, "!d%e"])
        self.assertEqual(self.k.eval("'100%' != '!'").json, True)

    def test_line_numbers_stay(self):
        value = self.k.eval("!true\n%matplotlib inline\n1 / 0")
        self.assertEqual(value.json["frames"][0]["line"], 3)

    def test_an_error_of_syntax_stays_one(self):
        for code in ("a b !", "x = 50 %", "x == !y", "!true\nx = ("):
            self.assertEqual(self.k.eval(code).json["name"], "SyntaxError", code)

    def test_unknown_magics_are_named(self):
        for code in ("%nope", "x = %nope 1", "%%nope\nbody"):
            value = self.k.eval(code)
            self.assertEqual(value.json["name"], "MagicError")
            self.assertIn("nope", value.json["value"])

    def test_cells(self):
        self.assertEqual(self.output("%%bash\necho $0\nfor i in 1 2; do echo $i; done").split()[1:], ["1", "2"])
        self.assertEqual(self.k.eval("%%sh\nexit 4").json["name"], "CalledProcessError")
        path = self.gate() + ".txt"
        self.output("%%%%writefile %s\none\n!two" % path)
        self.output("%%%%writefile -a %s\nthree" % path)
        with open(path) as file:
            self.assertEqual(file.read(), "one\n!two\nthree\n")
        (result,) = self.k.eval("%%html\n<b>x</b>").results
        self.assertEqual(result.html, "<b>x</b>")
        self.assertEqual(self.k.eval("%%capture\nprint(1)\ny = 2").status, 1)
        self.assertEqual((self.k.out.take(), self.k.eval("y").json), ("", 2))

    def test_times(self):
        value = self.k.eval("%%time\nz = 5\nz + 1")
        self.assertEqual(value.json, 6)
        self.assertIn("Wall time: ", self.k.out.take())
        self.assertEqual(self.k.eval("%time z * 2").json, 10)
        self.assertIn("CPU times: ", self.k.out.take())
        self.assertIn("of 3 runs, 7 loops each", self.output("%timeit -n 7 -r3 z + 1"))
        self.assertIn("of 2 runs, 5 loops each", self.output("%%timeit -n 5 -r 2\nz\nz"))
        self.assertEqual(self.k.eval("%%time\nimport asyncio\nawait asyncio.sleep(0)\n3").json, 3)

    def test_environment_and_directory(self):
        self.assertEqual(self.output("%env FORKD_X=1 2"), "env: FORKD_X=1 2\n")
        self.assertEqual(self.k.eval("%env FORKD_X").json, "1 2")
        self.assertEqual(self.output("%cd /usr"), "/usr\n")
        self.assertEqual(self.k.eval("%pwd").json, "/usr")

    def test_pip_runs_the_pip_of_this_python(self):
        value = self.k.eval("import sys\nsys.executable = '/bin/echo'\n%pip install x\npip install y")
        self.assertEqual((value.status, self.k.out.take()), (1, "-m pip install x\n-m pip install y\n"))

    def test_an_interrupt_ends_a_command_and_what_it_started(self):
        value = self.interrupted("!echo go; sleep 1000 & echo $! > /dev/null; sleep 1000", 0.05)
        self.assertEqual(value.status, 3)
        self.alive()


class Contexts(python_case.PythonCase):
    def warm(self, code):
        self.assertIn(self.k.eval(code).status, (0, 1))
        self.assertEqual(self.k.ask(b"W"), (b"A", b""))

    def test_new_contexts_begin_with_what_the_warm_up_defined(self):
        self.warm("from __future__ import annotations\nimport math\nvalues = [1]\nlimit = 10\n"
                  "def f(x, *, y=2):\n    '''doc'''\n    return x + y + limit\nclass C:\n    def g(self): return limit")
        self.k.eval("later = 1\nlimit = 100")
        self.assertEqual(self.k.eval("f(1), math.pi > 3, values, f.__doc__, f.__module__, 'later' in globals()", "a")
                         .json, [13, True, [1], "doc", "context_a", False])
        self.k.eval("limit = 20", "a")
        self.assertEqual(self.k.eval("f(1)", "a").json, 23)
        self.assertEqual(self.k.eval("f(1)").json, 103)
        self.assertEqual(self.k.eval("values.append(2)", "a").status, 1)
        self.assertEqual(self.k.eval("values").json, [1, 2])

    def test_rehearsal_at_the_end_of_the_warm_up_leaves_nothing_behind(self):
        self.k.eval("import forkd, gc, linecache, os, random, sys\ncalls = []\nforkd.after_fork(lambda: calls.append(1))\n"
                    "os.environ['KEPT'] = '1'")
        seen = "[os.getcwd(), sorted(os.environ), len(calls), len(os.listdir('/proc/self/fd')), 'x' in globals()]"
        self.k.after_fork(bytes(range(64)))
        before = self.k.eval(seen).json
        self.warm("pass")
        self.assertEqual(self.k.eval(seen).json, before)
        self.assertEqual(self.k.contexts(), ["default"])
        self.assertEqual(self.k.eval("[name for name in sys.modules if name.startswith(('context-', 'context_'))]").json, [])
        self.assertEqual(self.k.eval("'x = 1\\n' in [line for entry in linecache.cache.values() if len(entry) > 2 "
                                     "for line in entry[2]]").json, False)

    def test_rehearsal_of_a_child_runs_the_code_of_the_recipe_and_leaves_nothing_behind(self):
        self.k.eval("import forkd, os, sys\ncalls = []\nruns = []\nforkd.after_fork(lambda: calls.append(1))")
        self.assertEqual(self.k.ask(b"W", b"y = 1\nruns.append(y)"), (b"A", b""))
        seen = "[os.getcwd(), sorted(os.environ), calls, len(os.listdir('/proc/self/fd')), sorted(globals())]"
        before, count = self.k.eval(seen).json, self.k.eval("1").count
        self.assertEqual(self.k.ask(b"P"), (b"A", b"\1"))
        self.assertEqual(self.k.eval("runs").json, [1])
        self.assertEqual(self.k.eval(seen).json, before)
        self.assertEqual(self.k.eval("1").count, count + 3)
        self.assertEqual(self.k.contexts(), ["default"])

    def test_rehearsal_sets_variables_and_tells_whether_there_are_callbacks(self):
        self.assertEqual(self.k.ask(b"P", b"WHO=me\0"), (b"A", b"\0"))
        self.assertEqual(self.k.eval("import forkd, os\nos.environ['WHO']").json, "me")
        self.k.eval("forkd.after_fork(print)")
        self.assertEqual(self.k.ask(b"P", b"WHO=you\0"), (b"A", b"\1"))
        self.assertEqual(self.k.eval("os.environ['WHO']").json, "you")

    def test_after_fork_without_entropy_sets_variables_and_runs_callbacks_and_keeps_the_generators(self):
        self.k.eval("import forkd, os, random\ncalls = []\nforkd.after_fork(lambda: calls.append(os.environ['WHO']))")
        before = self.k.eval("random.getstate() == random.getstate(), hash(random.getstate())").json
        self.assertEqual(self.k.after_fork(b"", ["WHO=me"]), (b"A", b""))
        self.assertEqual(self.k.eval("calls").json, ["me"])
        self.assertEqual(self.k.eval("True, hash(random.getstate())").json, before)

    def test_rehearsal_survives_code_that_fails_and_answers_that_nothing_reads(self):
        for code in (b"1 / 0", b"'x' * 4000000"):
            self.k.ask(b"W", code)
            self.assertEqual(self.k.ask(b"P"), (b"A", b"\0"))
            self.assertEqual(self.k.eval("1 + 1").text, "2")

    def test_warm_up_of_a_kernel_that_was_not_forked_keeps_its_seed(self):
        self.warm("import random\nrandom.seed(1)")
        self.assertEqual(self.k.eval("random.random() == random.Random(1).random()").json, True)

    def test_evals_are_counted_by_context_from_the_end_of_the_warm_up_on(self):
        self.warm("x = 1")
        self.assertEqual([self.k.eval("1").count, self.k.eval("1 / 0").count, self.k.eval("1", "b").count], [1, 2, 1])

    def test_restart_begins_again(self):
        self.warm("base = 1\ndef f(): return base")
        self.k.eval("base = 2\nmore = 3")
        self.assertEqual(self.k.new_context("default", replace=True)[0], b"A")
        value = self.k.eval("f(), base, 'more' in globals(), '_' in globals()")
        self.assertEqual((value.json, value.count), ([1, 1, False, False], 1))
        self.k.eval("base = 5", "a")
        self.assertEqual(self.k.new_context("a", replace=True)[0], b"A")
        self.assertEqual(self.k.eval("f()", "a").json, 1)

    def test_contexts_have_their_own_directory(self):
        place = os.path.realpath(os.path.dirname(self.gate()))
        here = self.k.eval("import os\nos.getcwd()").json
        self.warm("pass")
        self.assertEqual(self.k.new_context("a", place), (b"A", place.encode()))
        self.assertEqual(self.k.eval("os.getcwd()", "a").json, place)
        self.k.eval("os.chdir('/')", "a")
        self.assertEqual(self.k.eval("os.getcwd()").json, here)
        self.assertEqual(self.k.eval("os.getcwd()", "a").json, "/")
        self.assertEqual(dict(self.k.contexts_with_cwd()), {"default": here, "a": "/"})
        self.assertEqual(self.k.new_context("a", replace=True), (b"A", place.encode()))
        self.assertEqual(self.k.eval("os.getcwd()", "a").json, place)

    def test_a_directory_that_is_gone_is_an_error_and_the_context_stays(self):
        place = os.path.dirname(self.gate())
        self.k.eval("import os")
        self.warm("pass")
        self.k.new_context("a", place)
        self.directory.cleanup()
        self.assertEqual(self.k.eval("1", "a").json["name"], "FileNotFoundError")
        os.mkdir(place)
        self.assertEqual(self.k.eval("os.getcwd()", "a").json, os.path.realpath(place))

    def test_a_context_is_not_made_twice_or_in_a_missing_directory(self):
        self.k.eval("1", "a")
        kind, text = self.k.new_context("a")
        self.assertEqual((kind, text.split(b":")[0]), (b"Z", b"exists"))
        kind, text = self.k.new_context("b", "/no/such/place")
        self.assertEqual((kind, text.split(b":")[0]), (b"Z", b"cwd"))

    def test_variables_last_for_the_eval_or_the_context(self):
        code = "import os\n[os.environ.get('A'), os.environ.get('B')]"
        self.k.new_context("a", env={"A": "of context"})
        self.assertEqual(self.k.eval_with(code, {"B": "of eval"}, "a").json, ["of context", "of eval"])
        self.assertEqual(self.k.eval(code, "a").json, ["of context", None])
        self.k.eval_with("os = __import__('os')\nos.environ['A'] = 'changed'\n1 / 0", {"A": "x"})
        self.assertEqual(self.k.eval(code).json, [None, None])


if __name__ == "__main__":
    unittest.main()
