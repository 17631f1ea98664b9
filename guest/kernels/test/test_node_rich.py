"""Results, contexts and variables of the Node kernel."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node_kernel  # noqa: E402


class Results(node_kernel.NodeKernel):
    def test_display_shows_forms_in_order_with_text_as_the_last_resort(self):
        value = self.k.eval("display({ a: 1 }); display.html('<b>'); display.png(Buffer.from([1, 2])); "
                            "display.json([1]); 7")
        self.assertEqual([each.forms for each in value.results],
                         [{"text": "{ a: 1 }"}, {"html": "<b>"}, {"png": b"\1\2"}, {"json": [1]}])
        self.assertEqual((value.text, value.json, value.count), ("7", 7, 1))

    def test_a_class_decides_how_its_objects_are_shown(self):
        for symbol in ("forkd.display", "Jupyter.display"):
            value = self.k.eval("({ [Symbol.for('%s')]: () => ({ html: '<i>', 'text/markdown': '*', 'x/y': 1 }) })"
                                % symbol)
            (result,) = value.results
            self.assertTrue(result.main)
            self.assertEqual((result.html, result.markdown, result.extra), ("<i>", "*", {"x/y": 1}))
            self.assertEqual(result.text, value.text)
            self.k.eval("const later = 1")

    def test_a_method_that_throws_is_the_error_of_the_eval(self):
        value = self.k.eval("({ [Symbol.for('forkd.display')]() { throw new RangeError('no') } })")
        self.assertEqual((value.status, value.json["name"], value.results), (2, "RangeError", []))

    def test_results_are_bounded_and_what_is_left_out_is_counted(self):
        value = self.k.eval("for (let i = 0; i < 250; i++) display(i)")
        self.assertEqual((len(value.results), value.dropped), (200, 50))
        value = self.k.eval("for (let i = 0; i < 10; i++) display.html('x'.repeat(1 << 20))")
        self.assertEqual((len(value.results), value.dropped), (7, 3))
        (result,) = self.k.eval("display.html('x'.repeat(5 << 20))").results
        self.assertEqual((result.forms, result.cut), ({}, ["html"]))

    def test_a_display_after_the_eval_is_output(self):
        self.k.eval("setTimeout(() => display('late'), 20)")
        self.k.out.wait_for("'late'\n")
        self.assertEqual(self.k.eval("1").results, [])

    def test_a_display_while_the_eval_awaits_belongs_to_it(self):
        value = self.k.eval("setTimeout(() => display(1), 5); await new Promise((done) => setTimeout(done, 50)); 2")
        self.assertEqual(([each.text for each in value.results], value.text), (["1"], "2"))


class Contexts(node_kernel.NodeKernel):
    def test_new_contexts_begin_with_what_the_warm_up_defined(self):
        self.k.eval("let list = [1]; const fixed = 2; var old = 3; function f() { return list } class C {}; loose = 4")
        self.assertEqual(self.k.ask(b"W"), (b"A", b""))
        self.k.eval("let later = 5")
        value = self.k.eval("[list, fixed, old, f(), typeof C, loose, typeof later]", "other")
        self.assertEqual(value.json, [[1], 2, 3, [1], "function", 4, "undefined"])
        self.k.eval("fixed = 9; list = 0", "other")
        self.assertEqual(self.k.eval("[fixed, list]").json, [2, [1]])

    def test_evals_are_counted_by_context_from_the_end_of_the_warm_up_on(self):
        self.k.eval("1")
        self.k.ask(b"W")
        self.assertEqual([self.k.eval("1").count, self.k.eval("1").count, self.k.eval("1", "b").count], [1, 2, 1])

    def test_contexts_have_their_own_directory(self):
        with tempfile.TemporaryDirectory() as place:
            place = os.path.realpath(place)
            here = self.k.eval("process.cwd()").json
            self.assertEqual(self.k.new_context("a", place), (b"A", place.encode()))
            self.assertEqual(self.k.eval("process.cwd()", "a").json, place)
            self.assertEqual(self.k.eval("process.cwd()").json, here)
            self.k.eval("process.chdir('/')", "a")
            self.assertEqual(self.k.eval("process.cwd()").json, here)
            self.assertEqual(self.k.eval("process.cwd()", "a").json, "/")
            self.assertEqual(dict(self.k.contexts_with_cwd()), {"default": here, "a": "/"})
            self.assertEqual(self.k.new_context("a", replace=True), (b"A", place.encode()))

    def test_a_context_is_not_made_twice_or_in_a_missing_directory(self):
        self.k.eval("1", "a")
        kind, text = self.k.new_context("a")
        self.assertEqual((kind, text.split(b":")[0]), (b"Z", b"exists"))
        kind, text = self.k.new_context("b", "/no/such/place")
        self.assertEqual((kind, text.split(b":")[0]), (b"Z", b"cwd"))
        self.assertEqual(self.k.new_context("default", replace=True)[0], b"Z")

    def test_variables_last_for_the_eval_or_the_context(self):
        code = "[process.env.A, process.env.B].map((each) => each ?? null)"
        self.k.new_context("a", env={"A": "of context"})
        self.assertEqual(self.k.eval_with(code, {"B": "of eval"}, "a").json, ["of context", "of eval"])
        self.assertEqual(self.k.eval(code, "a").json, ["of context", None])
        self.assertEqual(self.k.eval_with("process.env.A = 'changed'; await 1", {"A": "x"}).status, 0)
        self.assertEqual(self.k.eval(code).json, [None, None])


if __name__ == "__main__":
    unittest.main()
