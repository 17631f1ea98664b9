"""Results of the Python kernel. Libraries are used if the interpreter has them; fakes stand in for the rest."""
import os
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import python_case  # noqa: E402

FORMS = """
class Rich:
    def _repr_html_(self): return "<b>"
    def _repr_markdown_(self): return "*x*"
    def _repr_svg_(self): return "<svg/>"
    def _repr_png_(self): return b"\\x89PNG"
    def _repr_jpeg_(self): return "anBn"
    def _repr_pdf_(self): return b"%PDF", {"meta": 1}
    def _repr_latex_(self): return "$x$"
    def _repr_json_(self): return {"a": float("nan")}
    def _repr_javascript_(self): return "1"
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"application/vnd.x+json": {"b": 2}, "text/html": "<i>"}
    def __repr__(self): return "rich"
"""


class Results(python_case.PythonCase):
    def test_a_plain_value_has_no_result_besides_the_value(self):
        for code in ("1", "'a'", "[1]", "{'a': 1}", "object()", "str"):
            self.assertEqual(self.k.eval(code).results, [], code)

    def test_the_value_has_every_form_of_its_class(self):
        value = self.k.eval(FORMS + "Rich()")
        (result,) = value.results
        self.assertTrue(result.main)
        self.assertEqual(result.forms, {
            "text": "rich", "html": "<i>", "markdown": "*x*", "svg": "<svg/>", "png": b"\x89PNG", "jpeg": b"jpg",
            "pdf": b"%PDF", "latex": "$x$", "json": {"a": None}, "javascript": "1",
            "extra": {"application/vnd.x+json": {"b": 2}}})
        self.assertEqual((value.text, result.cut), ("rich", []))

    def test_display_keeps_the_order_of_results(self):
        value = self.k.eval(FORMS + "display(1, 'a')\ndisplay(Rich())\ndisplay({'text/html': 'h'}, raw=True)\n5")
        self.assertEqual([each.text for each in value.results], ["1", "'a'", "rich", None])
        self.assertEqual([each.main for each in value.results], [False] * 4)
        self.assertEqual((value.results[3].html, value.text), ("h", "5"))

    def test_output_before_a_result_is_written_before_it(self):
        ident = self.k.start("print('first', end='')\ndisplay(1)\nimport time\ntime.sleep(1e-3)\nprint('second')")
        kind, _ = self.k.answer(ident)
        self.assertEqual(kind, b"O")
        self.assertIn("first", self.k.out.take())
        self.k.value(ident)

    def test_a_form_that_fails_is_reported_and_the_others_remain(self):
        (result,) = self.k.eval("class A:\n def _repr_html_(self): raise ValueError('no')\n"
                                " def _repr_latex_(self): return '$y$'\n def _repr_json_(self): return object()\n"
                                "A()").results
        self.assertEqual(sorted(result.forms), ["latex", "text"])
        errors = self.k.err.take()
        self.assertIn("_repr_html_ failed: ValueError: no", errors)
        self.assertIn("cannot use json", errors)

    def test_objects_with_any_attribute_have_no_forms(self):
        self.assertEqual(self.k.eval("from unittest.mock import MagicMock\nclass Any:\n"
                                     " def __getattr__(self, name): return lambda *a, **k: 'x'\nAny()").results, [])
        self.assertEqual(self.k.eval("MagicMock()").results, [])

    def test_results_are_bounded_and_what_is_left_out_is_named(self):
        value = self.k.eval("for i in range(250): display(i)\nclass H:\n def _repr_html_(self): return 'h'\nH()")
        self.assertEqual((len(value.results), value.dropped, value.results[-1].html), (201, 50, "h"))
        self.k.eval("class L:\n def __init__(self, n): self.n = n\n def _repr_html_(self): return 'x' * self.n\n"
                    " def _repr_latex_(self): return 'y'\n def __repr__(self): return 'L'")
        (result,) = self.k.eval("display(L(5 << 20))").results
        self.assertEqual((result.forms, result.cut), ({"text": "L", "latex": "y"}, ["html"]))
        value = self.k.eval("for i in range(10): display(L(1 << 20))")
        self.assertEqual((len(value.results), value.dropped), (7, 3))
        (result,) = self.k.eval("class T:\n def __repr__(self): return 'ü' * (1 << 20)\n"
                                "display(T())").results
        self.assertEqual((result.cut, result.text[-1]), (["text"], "…"))
        self.assertLessEqual(len(result.text.encode()), 1 << 20)

    def test_results_of_a_thread_belong_to_the_eval_in_progress(self):
        value = self.k.eval("import threading\nt = threading.Thread(target=lambda: [display(i) for i in range(50)])\n"
                            "t.start(); t.join()")
        self.assertEqual([each.text for each in value.results], [str(i) for i in range(50)])
        gate = self.gate()
        self.k.eval("import os, time\ndef late():\n while not os.path.exists(%r): time.sleep(0.005)\n"
                    " display('late')\n print('done')\nthreading.Thread(target=late).start()" % gate)
        self.open_gate()
        self.k.out.wait_for("done\n")
        self.assertIn("'late'", self.k.out.take())
        self.assertEqual(self.k.eval("1").results, [])

    def test_threads_that_display_across_the_end_of_evals_do_no_harm(self):
        self.k.eval("import threading\nstop = False\ndef run():\n while not stop: display(1)\n"
                    "for _ in range(3): threading.Thread(target=run, daemon=True).start()")
        for _ in range(30):
            self.assertEqual(self.k.eval("1 + 1").text, "2")
        self.k.eval("stop = True")
        self.alive()

    def test_a_forked_process_sends_no_results(self):
        value = self.k.eval("import os\npid = os.fork()\nif pid == 0:\n display(1)\nelse:\n os.waitpid(pid, 0)\npid > 0")
        self.assertEqual((value.text, value.results), ("True", []))

    def test_an_interrupt_never_cuts_a_result(self):
        for _ in range(15):
            ident = self.k.start("print('go')\nclass H:\n def _repr_html_(self): return 'x' * 300000\n"
                                 "while True: display(H())")
            self.k.out.wait_for("go\n")
            threading.Timer(0.01, self.k.interrupt).start()
            value = self.k.value(ident)
            self.assertEqual(value.status, 3)
            self.assertTrue(all(len(each.html) == 300000 for each in value.results))
            self.k.out.take()
        self.alive()

    def test_display_and_its_objects_come_from_ipython_or_stand_in_for_it(self):
        value = self.k.eval("from IPython.display import display, HTML, Markdown, SVG, JSON, Latex, Javascript, Image\n"
                            "import IPython\nassert IPython.get_ipython() is None\n"
                            "display(HTML('h'), Markdown('m'), SVG('<svg/>'), JSON({'a': 1}), Latex('l'), Javascript('j'))\n"
                            "Image(data=b'\\x89PNG..')")
        self.assertEqual([value.results[i].forms[part] for i, part in enumerate(
            ("html", "markdown", "svg", "json", "latex", "javascript", "png"))],
            ["h", "m", "<svg/>", {"a": 1}, "l", "j", b"\x89PNG.."])

    def test_frames_are_those_of_the_user(self):
        value = self.k.eval("import json\ndef f(x):\n    return json.loads(x)\nf('{')")
        self.assertEqual([(each["line"], each["function"], each["text"]) for each in value.json["frames"]],
                         [(4, "<module>", "f('{')"), (3, "f", "return json.loads(x)")])
        (frame,) = self.k.eval("x = 1\nx = (").json["frames"]
        self.assertEqual((frame["line"], frame["text"]), (2, "x = ("))
        frames = self.k.eval("def r(): r()\nr()").json["frames"]
        self.assertEqual((len(frames), frames[0]["text"], frames[-1]["text"]), (100, "r()", "def r(): r()"))

    # Libraries

    def needs(self, *modules):
        for module in modules:
            if not self.has(module):
                self.skipTest("no " + module)

    def test_no_library_is_imported(self):
        value = self.k.eval("import sys\n[m for m in ('matplotlib', 'pandas', 'PIL', 'IPython', 'asyncio') "
                            "if m in sys.modules]")
        self.assertEqual(value.json, [])

    def test_pandas_tables_have_html_and_columns(self):
        self.needs("pandas")
        (result,) = self.k.eval("import pandas\npandas.DataFrame({'a': [1, None], 'b': ['x', 'y'],"
                                " 'c': pandas.to_datetime(['2020-01-01', None])})").results
        self.assertIn("<table", result.html)
        self.assertEqual(result.data, {"a": [1.0, None], "b": ["x", "y"], "c": ["2020-01-01T00:00:00", None]})
        (result,) = self.k.eval("pandas.DataFrame({'a': range(300000)})").results
        self.assertEqual((result.cut, result.data), (["data"], None))

    def test_figures_are_shown_once_at_the_end_or_by_show(self):
        self.needs("matplotlib")
        value = self.k.eval("import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4])\n7")
        self.assertEqual([each.main for each in value.results], [True, False])
        self.assertEqual((value.results[0].text, value.results[1].png[:4]), ("7", b"\x89PNG"))
        for code in ("plt.plot([1, 2])\nplt.show()", "fig, ax = plt.subplots()\nax.plot([1, 2])\nfig",
                     "fig = plt.figure()\nfig.add_subplot().plot([1])\nfig.show()",
                     "from matplotlib.figure import Figure\nf = Figure()\nf.add_subplot().plot([1, 2])\nf"):
            results = self.k.eval(code).results
            self.assertEqual([each.png[:4] for each in results], [b"\x89PNG"], code)
        value = self.k.eval("plt.plot([1])\n1 / 0")
        self.assertEqual((value.status, len(value.results)), (2, 1))
        self.assertEqual(self.k.eval("plt.get_fignums()").json, [])
        self.assertEqual(self.k.err.take(), "")

    def test_charts_have_the_data_of_figures(self):
        self.needs("matplotlib")
        self.k.eval("import matplotlib.pyplot as plt")

        def chart(code):
            return self.k.eval(code + "\nplt.show()").results[0].chart
        line = chart("plt.plot([1, 2], [3, 4], label='l')\nplt.title('T')\nplt.xlabel('t (s)')\nplt.yscale('log')")
        self.assertEqual((line["type"], line["title"], line["x_unit"], line["x_scale"], line["y_scale"]),
                         ("line", "T", "s", "linear", "log"))
        self.assertEqual(line["elements"], [{"label": "l", "points": [[1, 3], [2, 4]]}])
        self.assertEqual(chart("plt.scatter([1, 2], [3, 4])")["elements"][0]["points"], [[1, 3], [2, 4]])
        bars = [{"label": "a", "group": "g", "value": 1}, {"label": "b", "group": "g", "value": 2}]
        self.assertEqual(chart("plt.bar(['a', 'b'], [1, 2], label='g')")["elements"], bars)
        self.assertEqual(chart("plt.barh(['a', 'b'], [1, 2], label='g')")["elements"], bars)
        pie = chart("plt.pie([1, 3], labels=['x', 'y'])")
        self.assertEqual((pie["type"], [each["angle"] for each in pie["elements"]]), ("pie", [90, 270]))
        for patch in ("True", "False"):
            box = chart("plt.boxplot([[1, 2, 3, 4, 20]], labels=['p'], patch_artist=%s)" % patch)
            self.assertEqual((box["type"], box["elements"]), ("box_and_whisker", [
                {"label": "p", "min": 1, "first_quartile": 2, "median": 3, "third_quartile": 4, "max": 4,
                 "outliers": [20]}]))
        both = chart("f, (a, b) = plt.subplots(1, 2)\na.plot([1])\nb.bar([1], [2])\nf.suptitle('S')")
        self.assertEqual((both["type"], both["title"], [each["type"] for each in both["elements"]]),
                         ("superchart", "S", ["line", "bar"]))


if __name__ == "__main__":
    unittest.main()
