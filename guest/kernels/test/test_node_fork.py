"""The Node kernel after a fork: randomness, callbacks, signals."""
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from node_kernel import NodeKernel, ROOT  # noqa: E402

ONE, TWO = bytes(range(64)), bytes(range(1, 65))


class AfterFork(NodeKernel):
    def sequence(self, code, entropy, context="default"):
        self.assertEqual(self.k.after_fork(entropy), (b"A", b""))
        return self.k.eval(code, context).json

    def test_after_fork_without_entropy_sets_variables_and_runs_callbacks(self):
        self.k.eval("globalThis.calls = []; forkd.afterFork(() => { calls.push(process.env.WHO) }); 1")
        self.assertEqual(self.k.after_fork(b"", ["WHO=me"]), (b"A", b""))
        self.assertEqual(self.k.eval("calls").json, ["me"])

    def test_rehearsal_runs_the_code_of_the_recipe_and_leaves_no_names(self):
        self.k.ask(b"W", b"const kept = 1; globalThis.runs = (globalThis.runs ?? 0) + kept")
        count = self.k.eval("1").count
        self.assertEqual(self.k.ask(b"P"), (b"A", b"\0"))
        self.assertEqual(self.k.eval("[runs, typeof kept]").json, [1, "undefined"])
        self.assertEqual(self.k.eval("1").count, count + 2)

    def test_rehearsal_sets_variables_and_tells_whether_there_are_callbacks(self):
        self.assertEqual(self.k.ask(b"P", b"WHO=me\0"), (b"A", b"\0"))
        self.assertEqual(self.k.eval("process.env.WHO").json, "me")
        self.k.eval("forkd.afterFork(() => {}); 1")
        self.assertEqual(self.k.ask(b"P", b"WHO=you\0"), (b"A", b"\1"))

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
        self.assertRegex(self.k.version, r"^node [0-9.]+; openssl=not-reseeded; interrupt=partial; protocol=4$")
        self.assertEqual(self.k.after_fork(ONE), (b"A", b"openssl=not-reseeded"))
        self.assertEqual(self.interrupted("console.log('go'); for (;;);").status, 3)
        self.assertEqual(self.interrupted("console.log('go'); await new Promise(() => {})").status, 3)
        self.alive()


if __name__ == "__main__":
    unittest.main()
