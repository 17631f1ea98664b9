import assert from "node:assert/strict";
import { test } from "node:test";
import { Counter, exposition, Gauge, Histogram } from "../src/metrics.ts";

test("exposition() writes counters, gauges and histograms as Prometheus reads them", () => {
  const counter = new Counter("a_total", 'Counted "things"\nof \\ all kinds', [{ code: "none" }]);
  counter.add({ code: 'x"y\\z\n' });
  counter.add({ code: 'x"y\\z\n' }, 2);
  const gauge = new Gauge("b", "Now", () => [
    [{}, 1.5],
    [{ at: "end" }, Number.POSITIVE_INFINITY],
  ]);
  const histogram = new Histogram("c_seconds", "Times", [0.5, 1]);
  for (const value of [0.5, 0.75, 3, Number.NaN]) histogram.observe(value);
  assert.equal(
    exposition([counter, gauge, histogram]),
    [
      '# HELP a_total Counted "things"\\nof \\\\ all kinds',
      "# TYPE a_total counter",
      'a_total{code="none"} 0',
      'a_total{code="x\\"y\\\\z\\n"} 3',
      "# HELP b Now",
      "# TYPE b gauge",
      "b 1.5",
      'b{at="end"} +Inf',
      "# HELP c_seconds Times",
      "# TYPE c_seconds histogram",
      'c_seconds_bucket{le="0.5"} 1',
      'c_seconds_bucket{le="1"} 2',
      'c_seconds_bucket{le="+Inf"} 3',
      "c_seconds_sum 4.25",
      "c_seconds_count 3",
      "",
    ].join("\n"),
  );
});

test("exposition() shows a histogram without labels from the start, one with labels when it is used", () => {
  assert.match(exposition([new Histogram("h", "x", [1])]), /h_count 0/);
  const labelled = new Histogram("h", "x", [1], { labelled: true });
  assert.equal(labelled.samples().length, 0);
  labelled.observe(2, { route: "r" });
  assert.deepEqual(
    labelled.samples().map(({ suffix, labels, value }) => [suffix, labels, value]),
    [
      ["_bucket", { route: "r", le: "1" }, 0],
      ["_bucket", { route: "r", le: "+Inf" }, 1],
      ["_sum", { route: "r" }, 2],
      ["_count", { route: "r" }, 1],
    ],
  );
});

test("exposition() counts label sets beyond the limit as other", () => {
  const counter = new Counter("n_total", "x");
  for (let nth = 0; nth < 5000; nth++) counter.add({ id: String(nth) });
  const samples = counter.samples();
  assert.ok(samples.length <= 1001, String(samples.length));
  assert.equal(
    samples.reduce((sum, { value }) => sum + value, 0),
    5000,
  );
  assert.ok((samples.find(({ labels }) => labels["id"] === "other")?.value ?? 0) > 1000);
});
