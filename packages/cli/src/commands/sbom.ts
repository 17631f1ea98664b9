import { writeFile } from "node:fs/promises";
import { AppError, errorMessage } from "@forkd/contract/wire";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import type { Column } from "../terminal/table.ts";

type Listed = { name: string; version: string; type: string };

const columns: readonly Column<Listed>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "VERSION", value: ({ version }) => version },
  { title: "TYPE", value: ({ type }) => type },
];

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .argument("<tag>", "Snapshot")
    .option("-o, --output <file>", "Write the SPDX document to this file")
    .addHelpText(
      "after",
      "\nThe list is from the build. A branch has the list of the snapshot that it came from. --json prints SPDX 2.3.\n" +
        examples("forkd sbom python-numpy", "forkd sbom python-numpy -o python-numpy.spdx.json"),
    )
    .action(toAction(sbom));
}

async function sbom(cli: Cli, { output }: { output?: string }, tag: string): Promise<void> {
  const forkd = await cli.daemon();
  const document = await forkd.snapshots.sbom(tag, { signal: cli.signal });
  if (output !== undefined) {
    await write(output, `${JSON.stringify(document, undefined, 2)}\n`);
    return cli.out.note(`The list of packages is in ${output}.`);
  }
  if (cli.out.json) return cli.out.document(document);
  cli.out.list(packagesIn(document), { columns, name: ({ name }) => name });
}

async function write(path: string, text: string): Promise<void> {
  try {
    await writeFile(path, text);
  } catch (cause) {
    throw new AppError("invalid_request", `Cannot write "${path}": ${errorMessage(cause)}`, { cause });
  }
}

/** The packages that the snapshot contains; its own entry is the first. */
function packagesIn(document: Readonly<Record<string, unknown>>): Listed[] {
  const packages = Array.isArray(document["packages"]) ? (document["packages"] as unknown[]) : [];
  return packages.slice(1).map((each) => {
    const { name, versionInfo, externalRefs } = each as Record<string, unknown>;
    const [, type = "kernel"] =
      /"referenceLocator":"pkg:([a-z]+)/.exec(JSON.stringify(externalRefs ?? [])) ?? [];
    return { name: String(name), version: String(versionInfo), type };
  });
}
