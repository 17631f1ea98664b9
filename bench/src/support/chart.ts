/** A horizontal bar chart as SVG; logarithmic, because the rows span orders of magnitude. */
export function barChart(
  title: string,
  unit: string,
  bars: readonly { label: string; value: number }[],
): string {
  const known = bars.filter(({ value }) => Number.isFinite(value) && value > 0);
  const low = Math.log10(Math.min(...known.map(({ value }) => value))) - 0.3;
  const high = Math.log10(Math.max(...known.map(({ value }) => value)));
  const width = 760;
  const left = 260;
  const room = width - left - 110;
  const rows = known.map(({ label, value }, index) => {
    const y = 44 + index * 26;
    const length = Math.max(2, ((Math.log10(value) - low) / (high - low)) * room);
    return [
      `<text x="${left - 8}" y="${y + 13}" text-anchor="end">${escape(label)}</text>`,
      `<rect x="${left}" y="${y}" width="${length.toFixed(1)}" height="18" rx="2" fill="#3b6ea5"/>`,
      `<text x="${(left + length + 6).toFixed(1)}" y="${y + 13}">${format(value)} ${unit}</text>`,
    ].join("\n");
  });
  const height = 60 + known.length * 26;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" font-family="sans-serif" font-size="12">`,
    `<rect width="100%" height="100%" fill="#ffffff"/>`,
    `<text x="12" y="24" font-size="15">${escape(title)}</text>`,
    ...rows,
    "</svg>",
    "",
  ].join("\n");
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

function format(value: number): string {
  return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}
