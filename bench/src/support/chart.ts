/** Grouped horizontal bars on a logarithmic axis, as SVG for light and dark pages. Pure. */

export type Theme = "light" | "dark";
export type Bar = { label: string; value: number; series: string };
export type Chart = {
  title: string;
  subtitle: string;
  /** names the axis; the chart adds that it is logarithmic */
  axis: string;
  /** in the order of the legend; the first is drawn in the accent colour */
  series: readonly string[];
  groups: readonly { title: string; bars: readonly Bar[] }[];
};

export const palettes = {
  light: {
    page: "#ffffff",
    text: "#1f2328",
    quiet: "#59636e",
    grid: "#d1d9e0",
    bars: ["#0969da", "#8c959f", "#c69a4a"],
  },
  dark: {
    page: "#0d1117",
    text: "#f0f6fc",
    quiet: "#9198a1",
    grid: "#30363d",
    bars: ["#4493f8", "#768390", "#b08d49"],
  },
} as const;

const width = 840;
/** left end of the bars; labels end before it */
const left = 190;
/** right end of the longest bar; its value is written behind it */
const right = 765;
const top = 108;
const bar = { pitch: 22, height: 14 };
const group = { heading: 24, gap: 12 };
export const font = `font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"`;

/** Milliseconds, for readers. */
export function duration(ms: number): string {
  if (ms >= 9_950 || ms === 1_000) return `${(ms / 1000).toFixed(0)} s`;
  if (ms >= 1_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms.toFixed(0)} ms`;
}

export function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

type TextStyle = {
  fill: string;
  size?: number;
  weight?: number;
  anchor?: "end" | "middle";
  /** colour around the letters, where a line of the grid would cross them */
  halo?: string;
};

export function label(x: number, y: number, text: string, style: TextStyle): string {
  const { fill, size = 13, weight = 400, anchor, halo } = style;
  const place = `x="${x.toFixed(1)}" y="${y.toFixed(1)}"${anchor ? ` text-anchor="${anchor}"` : ""}`;
  const weightOf = weight === 400 ? "" : ` font-weight="${weight}"`;
  const haloOf = halo === undefined ? "" : ` stroke="${halo}" stroke-width="4" paint-order="stroke"`;
  return `<text ${place} font-size="${size}"${weightOf}${haloOf} fill="${fill}">${escape(text)}</text>`;
}

/** The axis starts at a power of ten that leaves the shortest bar a visible length. */
function axisOf(values: readonly number[]): { x: (value: number) => number; ticks: number[] } {
  const low = Math.floor(Math.log10(Math.min(...values) / 2));
  const high = Math.log10(Math.max(...values));
  const x = (value: number) => left + ((Math.log10(value) - low) / (high - low)) * (right - left);
  const ticks = Array.from({ length: Math.floor(high) - low + 1 }, (_, index) => 10 ** (low + index));
  return { x, ticks };
}

/** The bars in words, for those who cannot see them. */
function describe({ groups }: Chart): string {
  const parts = groups.map(
    ({ title, bars }) =>
      `${title}: ${bars.map(({ label: name, value }) => `${name} ${duration(value)}`).join(", ")}.`,
  );
  return parts.join(" ");
}

function legendOf(series: readonly string[], palette: (typeof palettes)[Theme]): string[] {
  let at = 0;
  return series.flatMap((name, index) => {
    const parts = [
      `<rect x="${at}" y="70" width="14" height="14" rx="2" fill="${palette.bars[index] ?? palette.quiet}"/>`,
      label(at + 21, 82, name, { fill: palette.text }),
    ];
    // About the width of the letters, which depends on the reader's font.
    at += 50 + Math.ceil(name.length * 7.2);
    return parts;
  });
}

export function renderChart(chart: Chart, theme: Theme): string {
  const palette = palettes[theme];
  const { x, ticks } = axisOf(chart.groups.flatMap(({ bars }) => bars.map(({ value }) => value)));
  const colour = (series: string) => palette.bars[chart.series.indexOf(series)] ?? palette.quiet;
  const body: string[] = [];
  let y = top;
  for (const { title, bars } of chart.groups) {
    body.push(label(0, y + 15, title, { fill: palette.text, weight: 600 }));
    y += group.heading;
    for (const { label: name, value, series } of bars) {
      const isOurs = series === chart.series[0];
      const weight = isOurs ? 600 : 400;
      body.push(
        label(left - 10, y + 12, name, { fill: palette.text, weight, anchor: "end" }),
        `<rect x="${left}" y="${y + 1}" width="${(x(value) - left).toFixed(1)}" height="${bar.height}" rx="2" fill="${colour(series)}"/>`,
        label(x(value) + 7, y + 12, duration(value), { fill: palette.text, weight, halo: palette.page }),
      );
      y += bar.pitch;
    }
    y += group.gap;
  }
  const end = y - group.gap + 4;
  const grid = ticks.flatMap((tick) => [
    `<path d="M${x(tick).toFixed(1)} ${top}V${end}" stroke="${palette.grid}"/>`,
    label(x(tick), end + 18, duration(tick), { fill: palette.quiet, size: 12, anchor: "middle" }),
  ]);
  const height = end + 46;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-labelledby="title desc" ${font}>`,
    `<title id="title">${escape(chart.title)}</title>`,
    `<desc id="desc">${escape(`${chart.subtitle} ${describe(chart)}`)}</desc>`,
    label(0, 20, chart.title, { fill: palette.text, size: 18, weight: 600 }),
    label(0, 44, chart.subtitle, { fill: palette.quiet }),
    ...legendOf(chart.series, palette),
    ...grid,
    ...body,
    label(left, end + 40, `${chart.axis} (logarithmic)`, { fill: palette.quiet, size: 12 }),
    "</svg>",
    "",
  ].join("\n");
}
