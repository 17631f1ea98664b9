/**
 * Counters, gauges and histograms, and their text form for Prometheus (0.0.4).
 *
 * Label values must come from a small set that the code knows. Series beyond `maxSeries` of one metric are
 * counted under the value "other", so that a labelling bug spoils one metric instead of exhausting memory.
 */

type Labels = Readonly<Record<string, string>>;
type Sample = { readonly suffix?: string; readonly labels: Labels; readonly value: number };

const maxSeries = 1000;

export interface Metric {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge" | "histogram";
  samples(): Sample[];
}

class Series<T> {
  readonly #values = new Map<string, { labels: Labels; value: T }>();
  readonly #create: () => T;

  constructor(create: () => T) {
    this.#create = create;
  }

  at(labels: Labels): { labels: Labels; value: T } {
    const key = JSON.stringify(Object.entries(labels));
    const found = this.#values.get(key);
    if (found) return found;
    if (this.#values.size >= maxSeries && Object.values(labels).some((value) => value !== "other"))
      return this.at(Object.fromEntries(Object.keys(labels).map((name) => [name, "other"])));
    const made = { labels: { ...labels }, value: this.#create() };
    this.#values.set(key, made);
    return made;
  }

  all(): { labels: Labels; value: T }[] {
    return [...this.#values.values()];
  }
}

export class Counter implements Metric {
  readonly type = "counter";
  readonly name: string;
  readonly help: string;
  readonly #series = new Series(() => 0);

  /** `first`: label sets that are shown as 0 before anything is counted */
  constructor(name: string, help: string, first: readonly Labels[] = []) {
    this.name = name;
    this.help = help;
    for (const labels of first) this.#series.at(labels);
  }

  add(labels: Labels = {}, by = 1): void {
    this.#series.at(labels).value += by;
  }

  samples(): Sample[] {
    return this.#series.all();
  }
}

/** Read when the text is made. */
export class Gauge implements Metric {
  readonly type = "gauge";
  readonly name: string;
  readonly help: string;
  readonly #read: () => readonly (readonly [Labels, number])[];

  constructor(name: string, help: string, read: () => readonly (readonly [Labels, number])[]) {
    this.name = name;
    this.help = help;
    this.#read = read;
  }

  samples(): Sample[] {
    return this.#read().map(([labels, value]) => ({ labels, value }));
  }
}

type Distribution = { counts: number[]; sum: number; count: number };

export class Histogram implements Metric {
  readonly type = "histogram";
  readonly name: string;
  readonly help: string;
  readonly #bounds: readonly number[];
  readonly #series: Series<Distribution>;

  /**
   * `bounds` are upper bounds in ascending order; the last bucket has none. Without labels it is shown from
   * the start.
   */
  constructor(name: string, help: string, bounds: readonly number[], options: { labelled?: boolean } = {}) {
    this.name = name;
    this.help = help;
    this.#bounds = bounds;
    this.#series = new Series(() => ({ counts: bounds.map(() => 0), sum: 0, count: 0 }));
    if (!options.labelled) this.#series.at({});
  }

  observe(value: number, labels: Labels = {}): void {
    if (!Number.isFinite(value)) return;
    const { value: to } = this.#series.at(labels);
    const bucket = this.#bounds.findIndex((bound) => value <= bound);
    if (bucket >= 0) to.counts[bucket] = (to.counts[bucket] ?? 0) + 1;
    to.sum += value;
    to.count++;
  }

  samples(): Sample[] {
    return this.#series.all().flatMap(({ labels, value: { counts, sum, count } }) => {
      let below = 0;
      const buckets = this.#bounds.map((bound, index): Sample => {
        below += counts[index] ?? 0;
        return { suffix: "_bucket", labels: { ...labels, le: String(bound) }, value: below };
      });
      return [
        ...buckets,
        { suffix: "_bucket", labels: { ...labels, le: "+Inf" }, value: count },
        { suffix: "_sum", labels, value: sum },
        { suffix: "_count", labels, value: count },
      ];
    });
  }
}

export function exposition(metrics: readonly Metric[]): string {
  return metrics.map(family).join("");
}

function family(metric: Metric): string {
  const { name, help, type } = metric;
  const lines = metric.samples().map(({ suffix = "", labels, value }) => {
    const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escapeValue(text)}"`);
    return `${name}${suffix}${pairs.length > 0 ? `{${pairs.join(",")}}` : ""} ${numberText(value)}\n`;
  });
  return `# HELP ${name} ${help.replaceAll("\\", "\\\\").replaceAll("\n", "\\n")}\n# TYPE ${name} ${type}\n${lines.join("")}`;
}

function escapeValue(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n").replaceAll('"', '\\"');
}

function numberText(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return "+Inf";
  return value === Number.NEGATIVE_INFINITY ? "-Inf" : String(value);
}
