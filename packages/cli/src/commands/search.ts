import type { SearchResult } from "@forkd/contract";
import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import { formatAge, formatBytes, type Column } from "../terminal/table.ts";

type Options = { plainHttp?: true };
type Found = SearchResult["found"][number];

const about = ({ annotations }: Found, name: string): string => annotations[`forkd.snapshot.${name}`] ?? "-";

const columns: readonly Column<Found>[] = [
  { title: "REFERENCE", value: ({ reference }) => reference },
  { title: "SIZE", value: ({ total_bytes }) => formatBytes(total_bytes), align: "right" },
  { title: "RECIPE", value: (found) => about(found, "recipe"), drop: 3 },
  { title: "ACCEL", value: (found) => about(found, "accelerator"), drop: 2 },
  { title: "CREATED", value: createdOf, drop: 1 },
];

function createdOf({ annotations }: Found): string {
  const at = Date.parse(annotations["org.opencontainers.image.created"] ?? "");
  return Number.isNaN(at) ? "-" : formatAge(at / 1000);
}

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .argument("[registry]", "REGISTRY[/PREFIX] (default: setting hub_registry)")
    .argument("[text]", "List only names that contain it")
    .option("--plain-http", "Connect without TLS")
    .addHelpText(
      "after",
      "\nOnly snapshots are listed, no container images. A registry that does not list its repositories, as many\n" +
        "public ones, lists the tags of a repository that is named.\n" +
        examples(
          "forkd search registry.example.com",
          "forkd search ghcr.io/team/python-numpy",
          "forkd search localhost:5000 numpy",
        ),
    )
    .action(toAction(search));
}

async function search(
  cli: Cli,
  options: Options,
  first: string | undefined,
  second: string | undefined,
): Promise<void> {
  // One word alone may be the text, for the registry of the setting.
  const isRegistry = first !== undefined && /[.:]|^localhost(?:\/|$)/.test(first);
  const [registry, text] = isRegistry || second !== undefined ? [first, second] : [undefined, first];
  const { authFor } = await import("../hub/registry-access.ts");
  const forkd = await cli.daemon();
  const auth = await authFor(forkd, registry === undefined ? undefined : `${registry}/`, cli.signal);
  using progress = cli.progress(`Searching ${registry ?? "the registry"}`);
  const { plainHttp } = options;
  const answer = await forkd.hub.search(registry, { text, auth, plainHttp, signal: cli.signal });
  progress[Symbol.dispose]();
  const found = wireOf<SearchResult>(answer);
  if (cli.out.json) return cli.out.document(found);
  cli.out.list(found.found, { columns, name: ({ reference }) => reference });
  if (found.found.length === 0) cli.out.note(`No snapshots in ${found.registry}.`);
  if (found.truncated) cli.out.note("There are more. Name a part of the registry to see them.");
}
