/** A strict parser of the Prometheus text format (0.0.4). */
import assert from "node:assert/strict";

export type Sample = { name: string; labels: Record<string, string>; value: number };
export type Family = { name: string; type: string; help: string; samples: Sample[] };

const namePattern = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const samplePattern = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/;
const labelPattern = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)/y;

export function parseMetrics(text: string): Map<string, Family> {
  assert.ok(text.endsWith("\n"), "the last line has no newline");
  const families = new Map<string, Family>();
  let current: Family | undefined;
  for (const line of text.slice(0, -1).split("\n")) {
    const help = /^# HELP (\S+) (.+)$/.exec(line);
    const type = /^# TYPE (\S+) (counter|gauge|histogram)$/.exec(line);
    if (help) {
      const [, name = "", words = ""] = help;
      assert.match(name, namePattern);
      assert.ok(!families.has(name), `${name} occurs twice`);
      current = { name, help: words, type: "", samples: [] };
      families.set(name, current);
    } else if (type) {
      assert.equal(type[1], current?.name, "TYPE follows HELP of the same name");
      assert.ok(current && current.samples.length === 0 && current.type === "");
      current.type = type[2] ?? "";
    } else {
      assert.ok(current?.type, `sample before its TYPE: ${line}`);
      current.samples.push(parseSample(line, current));
    }
  }
  for (const family of families.values()) checkFamily(family);
  return families;
}

function parseSample(line: string, family: Family): Sample {
  const match = samplePattern.exec(line);
  assert.ok(match, `not a sample: ${line}`);
  const [, name = "", labelText = "", number = ""] = match;
  const suffixes = family.type === "histogram" ? ["_bucket", "_sum", "_count"] : [""];
  assert.ok(
    suffixes.some((suffix) => name === family.name + suffix),
    `${name} does not belong to ${family.name}`,
  );
  assert.match(number, /^([+-]Inf|NaN|-?\d+(\.\d+)?(e[+-]?\d+)?)$/, line);
  const value = number === "+Inf" ? Number.POSITIVE_INFINITY : Number(number);
  return { name, labels: parseLabels(labelText, line), value };
}

function parseLabels(text: string, line: string): Record<string, string> {
  const labels: Record<string, string> = {};
  labelPattern.lastIndex = 0;
  while (labelPattern.lastIndex < text.length) {
    const match = labelPattern.exec(text);
    assert.ok(match, `not labels: ${line}`);
    const [, name = "", value = ""] = match;
    assert.ok(!Object.hasOwn(labels, name), `label ${name} occurs twice: ${line}`);
    labels[name] = value.replaceAll(/\\(.)/g, (_, escaped: string) => (escaped === "n" ? "\n" : escaped));
  }
  return labels;
}

function checkFamily({ name, type, samples }: Family): void {
  const keys = samples.map((sample) => sample.name + JSON.stringify(Object.entries(sample.labels).sort()));
  assert.equal(new Set(keys).size, keys.length, `${name} has duplicate series`);
  if (type === "counter")
    assert.ok(
      samples.every(({ value }) => value >= 0),
      name,
    );
  if (type !== "histogram") return;
  for (const count of samples.filter((sample) => sample.name === `${name}_count`)) {
    const own = (labels: Record<string, string>) =>
      JSON.stringify(Object.entries(labels).filter(([key]) => key !== "le")) ===
      JSON.stringify(Object.entries(count.labels));
    const buckets = samples.filter((sample) => sample.name === `${name}_bucket` && own(sample.labels));
    assert.equal(buckets.at(-1)?.labels["le"], "+Inf", name);
    assert.equal(buckets.at(-1)?.value, count.value, name);
    for (const [nth, { value }] of buckets.entries())
      assert.ok(nth === 0 || value >= (buckets[nth - 1]?.value ?? 0), `buckets of ${name} decrease`);
  }
}

/** The value of the only series with these labels. */
export function valueOf(
  families: Map<string, Family>,
  name: string,
  labels: Record<string, string> = {},
): number {
  const all = [...families.values()].flatMap(({ samples }) => samples);
  const found = all.filter(
    (sample) =>
      sample.name === name && Object.entries(labels).every(([key, value]) => sample.labels[key] === value),
  );
  assert.equal(found.length, 1, `${found.length} series of ${name} ${JSON.stringify(labels)}`);
  return found[0]?.value ?? Number.NaN;
}
