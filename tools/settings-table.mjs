/** Prints the settings as the Markdown table of the documentation. Needs the compiled packages. */
import { pathToFileURL } from "node:url";
import { describeSettings, loadConfig, settingTable } from "../packages/daemon/dist/src/index.js";

export async function settingsTable() {
  // A directory that does not exist, so that no config.json counts.
  const config = await loadConfig({}, { FORKD_DATA_DIR: "/nonexistent" });
  const rows = describeSettings(config).map(({ name, default: value, allowed, meaning }) => {
    const usual = settingTable[name].usually ?? value;
    const cells = [`\`${name}\``, usual === null || usual === "[]" ? "" : usual, allowed, meaning];
    return `| ${cells.join(" | ")} |\n`;
  });
  return `| setting | default | allowed | meaning |\n|---|---|---|---|\n${rows.join("")}`;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href)
  process.stdout.write(await settingsTable());
