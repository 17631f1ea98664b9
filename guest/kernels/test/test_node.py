"""Behaviour of the Node kernel."""
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from node_kernel import NodeKernel  # noqa: E402


class Values(NodeKernel):
    def test_greeting_has_the_version_and_no_warning(self):
        self.assertRegex(self.k.version, r"^node \d+\.\d+\.\d+; protocol=4$")

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
            self.assertEqual((value.status, value.json["name"], value.json["value"]), (2, "TypeError", "no"))
            outer, inner = value.json["frames"]
            self.assertEqual((inner["file"], inner["line"], inner["function"]), ("<eval-1>", 1, "f"))
            self.assertEqual((outer["line"], outer["text"]), (1, code))
            self.assertRegex(value.text, r"^TypeError: no\n    at f \(<eval-1>:1:22\)\n    at <eval-\d>:1:\d+\n$")

    def test_syntax_error(self):
        for code in ("foo bar", "let a = 1\nfoo bar"):
            value = self.k.eval(code)
            self.assertEqual((value.status, value.json["name"]), (2, "SyntaxError"))
            self.assertRegex(value.text, r"^<eval-\d>:%d\nfoo bar\n    \^+\n\nSyntaxError: [^\n]*\n$" % len(code.split("\n")))

    def test_thrown_values(self):
        self.assertEqual(self.k.eval("throw 5").json, {"name": "number", "value": "5", "frames": []})
        self.assertEqual(self.k.eval("await Promise.reject(null)").json, {"name": "null", "value": "null", "frames": []})

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


if __name__ == "__main__":
    unittest.main()
