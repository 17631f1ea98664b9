/** Steps of one piece of work as bars one below the other, on a linear axis, as SVG. Pure. */
import { duration, escape, font, label, palettes, type Theme } from "./chart.ts";

export type Step = { label: string; from: number; to: number };
export type Waterfall = {
  title: string;
  subtitle: string;
  groups: readonly { title: string; steps: readonly Step[] }[];
};

const width = 840;
const left = 250;
const right = 765;
const top = 74;
const bar = { pitch: 20, height: 12 };
const group = { heading: 24, gap: 34 };

function describe({ groups }: Waterfall): string {
  const parts = groups.map(
    ({ title, steps }) =>
      `${title}: ${steps.map(({ label: name, from, to }) => `${name} ${duration(to - from)}`).join(", ")}.`,
  );
  return parts.join(" ");
}

/** The largest of 1, 2 and 5 times a power of ten of which at most six fit. */
function tickOf(span: number): number {
  const power = 10 ** Math.floor(Math.log10(span / 6));
  return power * ([1, 2, 5, 10].find((each) => span / (power * each) <= 6) ?? 10);
}

export function renderWaterfall(chart: Waterfall, theme: Theme): string {
  const palette = palettes[theme];
  const body: string[] = [];
  let y = top;
  for (const { title, steps } of chart.groups) {
    const end = Math.max(...steps.map(({ to }) => to));
    const x = (ms: number) => left + (ms / end) * (right - left);
    body.push(label(0, y + 15, title, { fill: palette.text, weight: 600 }));
    y += group.heading;
    const bottom = y + steps.length * bar.pitch;
    const every = tickOf(end);
    for (let tick = 0; tick <= end; tick += every) {
      body.push(
        `<path d="M${x(tick).toFixed(1)} ${y}V${bottom}" stroke="${palette.grid}"/>`,
        label(x(tick), bottom + 16, duration(tick), { fill: palette.quiet, size: 12, anchor: "middle" }),
      );
    }
    for (const { label: name, from, to } of steps) {
      const length = Math.max(1, x(to) - x(from));
      body.push(
        label(left - 10, y + 11, name, { fill: palette.text, anchor: "end" }),
        `<rect x="${x(from).toFixed(1)}" y="${y + 1}" width="${length.toFixed(1)}" height="${bar.height}" rx="2" fill="${palette.bars[0]}"/>`,
        label(x(from) + length + 6, y + 11, duration(to - from), {
          fill: palette.text,
          size: 12,
          halo: palette.page,
        }),
      );
      y += bar.pitch;
    }
    y += group.gap;
  }
  const height = y;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="title desc" ${font}>`,
    `<title id="title">${escape(chart.title)}</title>`,
    `<desc id="desc">${escape(`${chart.subtitle} ${describe(chart)}`)}</desc>`,
    label(0, 20, chart.title, { fill: palette.text, size: 18, weight: 600 }),
    label(0, 44, chart.subtitle, { fill: palette.quiet }),
    ...body,
    "</svg>",
    "",
  ].join("\n");
}
