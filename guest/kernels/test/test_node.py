"""Behaviour of the Node kernel. FORKD_NODE names the node to run (default node). Run `make` first."""
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
ONE, TWO = bytes(range(64)), bytes(range(1, 65))


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


class Values(NodeKernel):
    def test_greeting_has_the_version_and_no_warning(self):
        self.assertRegex(self.k.version, r"^node \d+\.\d+\.\d+$")

    def test_values(self):
        for code, text, form in (("1 + 1", "2", "2"), ("'a'", "'a'", '"a"'), ("null", "null", "null"),
                                 ("var a = {b: [1]}; a", "{ b: [ 1 ] }", '{"b":[1]}'), ("{c: 2}", "{ c: 2 }", '{"c":2}'),
                                 ("NaN", "NaN", ""), ("10n", "10n", ""), ("await 10n", "10n", ""), ("await -0", "-0", "0"),
                                 ("await Symbol.iterator", "Symbol(Symbol.iterator)", ""),
                                 ("(() => 1)", "[Function (anonymous)]", ""), ("new Map([[1, 2]])", "Map(1) { 1 => 2 }", "")):
            value = self.k.eval(code)
            self.assertEqual((value.status, value.text, value.form), (0, text, form), code)

    def test_no_value(self):
        for code in ("undefined", "var x = 1", "let y = 2", "", "// nothing", "function f() {}", "await undefined"):
            self.assertEqual(self.k.eval(code).status, 1, code)

    def test_state_persists(self):
        self.k.eval("var a = 1; let b = 2; const c = 3; class D { e = 4 }; function f() { return 5 }")
        self.assertEqual(self.k.eval("[a, b, c, new D().e, f()]").json, [1, 2, 3, 4, 5])

    def test_names_can_be_declared_again(self):
        for n in (1, 2):
            self.k.eval("const x = %d; let y = %d; class Z {}" % (n, n))
            self.assertEqual(self.k.eval("[x, y]").json, [n, n])

    def test_top_level_await_keeps_its_variables(self):
        self.assertEqual(self.k.eval("const p = await new Promise((r) => setTimeout(r, 5, 7)); p").json, 7)
        self.assertEqual(self.k.eval("for (const x of [1, 2]) await x; p").json, 7)

    def test_object_values_are_the_objects_themselves(self):
        self.k.eval("const o = {n: 1}; globalThis.same = (x) => x === o")
        self.assertEqual(self.k.eval("await o").text, "{ n: 1 }")

    def test_require_and_import_resolve_from_the_working_directory(self):
        with open(self.directory.name + "/m.cjs", "w") as file:
            file.write("exports.n = 5")
        with open(self.directory.name + "/m.mjs", "w") as file:
            file.write("export const n = 6")
        self.assertEqual(self.k.eval("require('./m.cjs').n").json, 5)
        self.assertEqual(self.k.eval("(await import('./m.mjs')).n").json, 6)
        self.assertEqual(self.k.eval("const { readFileSync } = await import('node:fs'); typeof readFileSync").json, "function")
        self.assertEqual(self.k.eval("import('./m.mjs').then((m) => console.log(m.n)); 1").json, 1)
        self.k.out.wait_for("6\n")

    def test_import_in_text_is_unchanged(self):
        text = "const s = await import('node:path') && \"import('x')\" + `import(${1}` + /import(a)/.source; s"
        self.assertEqual(self.k.eval(text).json, "import('x')import(1import(a)")
        self.assertEqual(self.k.eval("const o = {async import(x) { return x }}; await o.import(3)").json, 3)

    def test_globals_of_node(self):
        self.assertEqual(self.k.eval("[typeof process, typeof Buffer, typeof setTimeout, typeof URL, typeof fetch]").json,
                         ["object", "function", "function", "function", "function"])

    def test_long_text_is_truncated_and_long_json_omitted(self):
        value = self.k.eval("'ü'.repeat(5 << 20)")
        self.assertEqual((value.status, value.form, value.text[-1]), (0, "", "…"))
        size = len(value.text.encode())
        self.assertTrue((4 << 20) - 4 < size <= 4 << 20, size)
        self.assertEqual((value.whole, value.json_cut), ((10 << 20) + 2, True))

    def test_flags_say_what_is_cut(self):
        value = self.k.eval("'x'.repeat(9)")
        self.assertEqual((value.whole, value.json_cut), (None, False))
        self.assertEqual(self.k.eval("(() => 1)").json_cut, False)  # has no JSON form
        self.assertEqual(self.k.eval("x = []; for (let i = 0; i < 1e5; i++) x = [x]; ({ x })").json_cut, True)
        value = self.k.eval("throw new Error('x'.repeat(70000))")
        self.assertEqual((value.status, len(value.json["value"]), value.json_cut), (2, 65536, True))

    def test_contexts_are_separate_and_can_be_dropped(self):
        self.k.eval("var x = 1; let y = 2")
        self.assertEqual(self.k.eval("[typeof x, typeof y]", "other").json, ["undefined", "undefined"])
        self.k.eval("var x = 3; const z = await 4", "other")
        self.assertEqual((self.k.eval("x").json, self.k.eval("[x, z]", "other").json), (1, [3, 4]))
        self.assertEqual(self.k.eval("typeof z").json, "undefined")
        self.assertEqual(self.k.eval("[typeof require, typeof fetch, typeof forkd, require('os') === "
                                     "process.mainModule?.constructor._load('os')]", "other").json[:3],
                         ["function", "function", "object"])
        self.assertEqual(self.k.contexts(), ["default", "other"])
        self.assertEqual(self.k.drop("other"), (b"A", b""))
        self.assertEqual(self.k.eval("typeof z", "other").json, "undefined")
        self.assertEqual(self.k.drop("default")[0], b"Z")


class Errors(NodeKernel):
    def test_stack_has_user_frames_only(self):
        self.k.eval("function f() { throw new TypeError('no') }")
        for code in ("f()", "await 1; f()", "const x = f()"):
            value = self.k.eval(code)
            self.assertEqual((value.status, value.json), (2, {"name": "TypeError", "value": "no"}))
            self.assertRegex(value.text, r"^TypeError: no\n    at f \(<eval-1>:1:22\)\n    at <eval-\d>:1:\d+\n$")

    def test_syntax_error(self):
        for code in ("foo bar", "let a = 1\nfoo bar"):
            value = self.k.eval(code)
            self.assertEqual((value.status, value.json["name"]), (2, "SyntaxError"))
            self.assertRegex(value.text, r"^<eval-\d>:%d\nfoo bar\n    \^+\n\nSyntaxError: [^\n]*\n$" % len(code.split("\n")))

    def test_thrown_values(self):
        self.assertEqual(self.k.eval("throw 5").json, {"name": "number", "value": "5"})
        self.assertEqual(self.k.eval("await Promise.reject(null)").json, {"name": "null", "value": "null"})

    def test_exit_is_an_error(self):
        for code in ("process.exit(3)", "await 1; process.exit(3)"):
            value = self.k.eval(code)
            self.assertEqual((value.status, value.json["name"]), (2, "ProcessExit"))
        self.alive()

    def test_failing_inspect_is_an_error(self):
        self.assertEqual(self.k.eval("({[Symbol.for('nodejs.util.inspect.custom')]() { throw new Error('no') }})").status, 2)
        self.assertEqual(self.k.eval("({toJSON() { throw new Error('no') }})").form, "")

    def test_deep_recursion(self):
        self.assertEqual(self.k.eval("(function f() { f() })()").json["name"], "RangeError")
        self.alive()

    def test_stray_errors_go_to_stderr(self):
        self.k.eval("setTimeout(() => { throw new Error('timer') }, 1); Promise.reject(new Error('reject')); 0")
        self.k.err.wait_for("Error: timer\n")
        self.k.err.wait_for("Error: reject\n")
        self.k.eval("setTimeout(() => process.exit(1), 1); 0")
        self.k.err.wait_for("ProcessExit")
        self.alive()

    def test_malformed_messages_are_refused(self):
        self.assertEqual(self.k.ask(b"?")[0], b"Z")
        self.assertEqual(self.k.ask(b"E", b"\xff\xff")[0], b"Z")
        self.alive()

    def test_kernel_exits_when_the_control_stream_closes(self):
        self.k.eval("setInterval(() => {}, 1000); 0")
        self.k.sock.close()
        self.assertEqual(self.k.process.wait(5), 0)


class Output(NodeKernel):
    def test_output_is_written_before_the_value(self):
        self.k.eval("process.stdout.write('a'); console.error('b'); console.log('c')")
        self.assertEqual((self.k.out.take(), self.k.err.take()), ("ac\n", "b\n"))
        self.k.eval("console.log('d')", "other")
        self.assertEqual(self.k.out.take(), "d\n")

    def test_huge_output(self):
        self.k.eval("console.log('x'.repeat(8 << 20))")
        self.assertEqual(len(self.k.out.take()), (8 << 20) + 1)

    def test_ended_stdout(self):
        self.k.eval("process.stdout.end('x'); process.stdout.destroy(); console.log('y')")
        self.assertEqual(self.k.out.take(), "xy\n")

    def test_timers_run_between_evals(self):
        self.k.eval("setTimeout(() => console.log('tick'), 20); 0")
        self.k.out.wait_for("tick\n")

    def test_messages_wait_for_an_eval_that_awaits(self):
        first = self.k.start("await new Promise((r) => setTimeout(r, 50, 1))")
        second = self.k.start("2")
        self.assertEqual((self.k.value(first).json, self.k.value(second).json), (1, 2))

    def test_large_message_in_and_out(self):
        self.assertEqual(self.k.eval("'%s'.length" % ("x" * (8 << 20))).json, 8 << 20)
        self.assertEqual(len(self.k.eval("'x'.repeat(3 << 20)").json), 3 << 20)

    def test_user_code_cannot_reach_the_control_stream(self):
        control = self.k.eval("require('fs').readlinkSync('/proc/self/fd/900')").json
        self.assertIn("socket:", control)
        listing = self.k.eval("require('child_process').execSync('ls -l /proc/self/fd').toString()").json
        self.assertNotIn(control, listing)


class Interrupts(NodeKernel):
    def check(self, code):
        value = self.interrupted(code)
        self.assertEqual((value.status, value.json["name"]), (3, "Interrupted"))
        self.alive()
        self.k.eval("console.log('out')")
        self.assertEqual((self.k.out.take(), self.k.err.take()), ("out\n", ""))

    def test_loop(self):
        self.check("console.log('go'); for (;;);")

    def test_loop_in_a_context_that_can_await(self):
        self.check("const x = 1; console.log('go'); for (;;);")

    def test_loop_that_prints(self):
        self.check("for (;;) console.log('go')")

    def test_pending_await(self):
        self.check("console.log('go'); await new Promise(() => {})")

    def test_loop_after_await(self):
        self.check("await 1; console.log('go'); for (;;);")

    def test_loop_of_awaits(self):
        self.check("console.log('go'); while (true) await 1")

    def test_loop_in_a_timer(self):
        self.check("await new Promise(() => setTimeout(() => { console.log('go'); for (;;); }, 1))")

    def test_loop_in_inspect(self):
        self.check("({[Symbol.for('nodejs.util.inspect.custom')]() { console.log('go'); for (;;); }})")

    def test_loop_in_a_timer_between_evals(self):
        self.k.eval("setTimeout(() => { console.log('go'); for (;;); }, 1); 0")
        self.k.out.wait_for("go\n")
        self.k.interrupt()
        self.alive()

    def test_interrupts_between_and_around_evals_do_no_harm(self):
        for n in range(200):
            ident = self.k.start(("await %d" if n % 2 else "%d") % n)
            self.k.interrupt()
            self.assertIn(self.k.value(ident).status, (0, 3))
            self.k.interrupt()
        time.sleep(0.4)  # the last interrupt has been handled by then
        self.alive()
        self.assertEqual(self.k.err.take(), "")

    def test_listener_of_user_code_does_not_disable_interrupts(self):
        self.k.eval("process.on('SIGINT', () => {})")
        self.check("console.log('go'); for (;;);")


class AfterFork(NodeKernel):
    def sequence(self, code, entropy, context="default"):
        self.assertEqual(self.k.after_fork(entropy), (b"A", b""))
        return self.k.eval(code, context).json

    def test_math_random_of_every_context(self):
        code = "Array.from({length: 4}, () => Math.random())"
        for context in ("default", "other"):
            self.k.eval("0", context)
            one, again, two = (self.sequence(code, e, context) for e in (ONE, ONE, TWO))
            self.assertEqual(one, again)
            self.assertNotEqual(one, two)
            self.assertEqual(len(set(one + two)), 8)

    def test_math_random_is_uniform_and_has_53_bits(self):
        code = """var n = 100000, sum = 0, bins = new Array(16).fill(0), odd = 0
for (var i = 0; i < n; i++) { var x = Math.random(); sum += x; bins[Math.floor(x * 16)]++; odd += (x * 2 ** 53) % 2 }
;[sum / n, odd / n, Math.max(...bins) / n, Math.min(...bins) / n]"""
        mean, odd, high, low = self.sequence(code, ONE)
        self.assertAlmostEqual(mean, 0.5, delta=0.01)
        self.assertAlmostEqual(odd, 0.5, delta=0.01)  # the last bit
        self.assertTrue(0.058 < low < high < 0.067, (low, high))

    def test_each_byte_of_the_entropy_counts(self):
        seen = {self.sequence("Math.random()", ONE[:i] + b"\xff" + ONE[i + 1:]) for i in range(64)}
        self.assertEqual(len(seen), 64)

    def test_all_prefetched_numbers_are_dropped(self):
        source = self.k.eval("process.binding('natives')['internal/crypto/random']").json
        self.assertIn("kBatchSize = 128", source)
        self.assertIn("6 * 1024", source)
        self.k.eval("const c = require('crypto'); c.randomUUID(); c.randomInt(9)")
        self.assertRegex(self.sequence("c.randomUUID()", ONE), r"^[0-9a-f-]{36}$")
        self.assertIn(self.k.eval("c.randomInt(3)").json, (0, 1, 2))

    def test_environment_is_updated(self):
        self.k.after_fork(ONE, ["FORKD_A=b=c", "FORKD_E="])
        self.assertEqual(self.k.eval("[process.env.FORKD_A, process.env.FORKD_E]").json, ["b=c", ""])

    def test_callbacks_run_and_are_awaited(self):
        self.k.eval("var seen = []; forkd.afterFork(() => { seen.push(Math.random()) }); "
                    "forkd.afterFork(() => new Promise((r) => setTimeout(() => { seen.push('late'); r() }, 10)))")
        one, two = self.sequence("seen.splice(0)", ONE), self.sequence("seen.splice(0)", TWO)
        self.assertEqual((one[1], two[1]), ("late", "late"))
        self.assertNotEqual(one[0], two[0])

    def test_failures_are_reported(self):
        self.assertEqual(self.k.after_fork(b"short")[0], b"Z")
        self.k.eval("forkd.afterFork(() => { throw new Error('no') })")
        self.assertEqual(self.k.after_fork(ONE), (b"Z", b"Error: no"))
        self.alive()


class ReseedSignal(NodeKernel):
    """A fork during an eval: the kernel cannot read messages, so the signal must be enough."""

    def reseeded(self, before, after):
        gate = self.directory.name + "/gate"
        ident = self.k.start("var fs = require('fs'), c = require('crypto'); %s; console.log('go'); "
                             "while (!fs.existsSync('%s')); %s" % (before, gate, after))
        self.k.out.wait_for("go\n")
        self.k.reseed()
        time.sleep(0.05)
        open(gate, "w").close()
        value = self.k.value(ident)
        os.unlink(gate)
        self.k.out.take()
        self.assertEqual((value.status, self.k.err.take()), (0, ""), value)
        return value.json

    DRAW = "Array.from({length: 4}, () => Math.random())"

    def test_math_random(self):
        self.k.after_fork(ONE)
        plain = self.k.eval(self.DRAW).json
        seen = [plain]
        for _ in range(2):
            self.k.after_fork(ONE)
            seen.append(self.reseeded("0", self.DRAW))
        self.assertEqual(len({tuple(s) for s in seen}), 3)
        self.k.after_fork(ONE)
        self.assertEqual(self.k.eval(self.DRAW).json, plain, "once served, the message alone counts again")

    COUNT = "var addon = require('%s/build/reseed.node'), base = addon.refresh, seen = 0; " \
            "addon.refresh = (bytes) => { seen++; return base(bytes) }" % os.path.dirname(ROOT)

    def test_hot_loop(self):
        """Optimised code sees the flag, too."""
        self.k.eval(self.COUNT)
        ident = self.k.start("var x = 0, end = Date.now() + 10000; console.log('go'); "
                             "while (Date.now() < end && seen < 2) for (var i = 0; i < 1e5; i++) x += Math.random(); seen")
        self.k.out.wait_for("go\n")
        for _ in range(2):
            time.sleep(0.3)
            self.k.reseed()
        self.assertEqual(self.k.value(ident).json, 2)

    def test_every_wrapped_function_checks_the_flag_once(self):
        self.k.eval(self.COUNT)
        for draw in ("Math.random()", "c.randomBytes(4)", "c.randomFillSync(Buffer.alloc(4))",
                     "c.randomFill(Buffer.alloc(4), () => {})", "c.randomInt(9)", "c.randomUUID()",
                     "c.webcrypto.getRandomValues(new Uint8Array(4))", "c.getRandomValues(new Uint8Array(4))",
                     "c.webcrypto.randomUUID()"):
            self.assertEqual(self.reseeded("%s; seen = 0" % draw, "%s; %s; seen" % (draw, draw)), 1, draw)
        self.assertEqual(self.k.eval("[c.randomBytes.name, c.randomInt.name]").json, ["randomBytes", "randomInt"])

    def test_callbacks_wait_for_the_message(self):
        self.k.eval("var seen = []; forkd.afterFork(() => seen.push(1)); 0")
        self.assertEqual(self.reseeded("0", "seen.length"), 0)
        self.assertEqual(self.k.after_fork(ONE), (b"A", b""))
        self.assertEqual(self.k.eval("seen").json, [1])

    def test_signals_at_rest_around_messages_and_with_interrupts_do_no_harm(self):
        for n in range(200):
            self.k.reseed()
            ident = self.k.start(("await %d; Math.random()" if n % 2 else "%d; Math.random()") % n)
            self.k.reseed()
            if n % 3 == 0:
                self.k.interrupt()
            self.assertIn(self.k.value(ident).status, (0, 3))
            self.assertEqual(self.k.after_fork(ONE), (b"A", b""))
        time.sleep(0.4)
        self.alive()
        self.assertEqual(self.k.err.take(), "")

    def test_programs_do_not_inherit_the_handler(self):
        mask = self.k.eval("require('child_process').execSync('grep SigIgn /proc/self/status').toString().split('\\t')[1]").json
        self.assertEqual(int(mask, 16) >> 40 & 1, 0)


class WithoutAddon(NodeKernel):
    env = {"FORKD_RESEED": "/nonexistent.node"}

    def test_greeting_reports_it_and_evals_work(self):
        self.assertRegex(self.k.version, r"^node [0-9.]+; openssl=not-reseeded; interrupt=partial$")
        self.assertEqual(self.k.after_fork(ONE), (b"A", b"openssl=not-reseeded"))
        self.assertEqual(self.interrupted("console.log('go'); for (;;);").status, 3)
        self.assertEqual(self.interrupted("console.log('go'); await new Promise(() => {})").status, 3)
        self.alive()


if __name__ == "__main__":
    unittest.main()
