import type { CreatedKey, KeyInfo, Scope } from "@forkd/contract";
import { plural } from "@forkd/contract/wire";
import { wireOf } from "@forkd/sdk";
import { Option, type Command } from "commander";
import { collectText, parseExpiry, wholeNumber } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { forEach } from "../terminal/for-each.ts";
import { addCommonOptions, addTableOption, examples } from "../options/help.ts";
import { addRuleOptions, readPolicy, type RuleOptions } from "../options/network.ts";
import { formatAge, type Column } from "../terminal/table.ts";

type CreateOptions = RuleOptions & {
  scope: Scope;
  expires?: Date;
  maxSandboxes?: number;
  maxMemoryMib?: number;
  secret?: string[];
};

const columns: readonly Column<KeyInfo>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "SCOPE", value: ({ scope }) => scope },
  { title: "SANDBOXES", value: ({ max_sandboxes }) => String(max_sandboxes ?? "-"), align: "right", drop: 3 },
  {
    title: "MEMORY",
    value: ({ max_memory_mib }) => (max_memory_mib === undefined ? "-" : `${max_memory_mib} MiB`),
    align: "right",
    drop: 2,
  },
  { title: "NETWORK", value: ({ network }) => (network ? describePolicy(network) : "-"), drop: 4 },
  { title: "SECRETS", value: ({ secrets }) => (secrets ? secrets.join(",") || "none" : "-"), drop: 5 },
  { title: "CREATED", value: ({ created_at_unix }) => formatAge(created_at_unix), drop: 1 },
  {
    title: "USED",
    value: ({ last_used_unix }) => (last_used_unix === undefined ? "-" : formatAge(last_used_unix)),
  },
  { title: "EXPIRES", value: describeExpiry },
];

/** `filtered, 2 rules` */
function describePolicy({ mode, rules }: NonNullable<KeyInfo["network"]>): string {
  return rules.length === 0 ? mode : `${mode}, ${plural(rules.length, "rule")}`;
}

function describeExpiry({ expires_at_unix: at, expired }: KeyInfo): string {
  if (at === undefined) return "never";
  return `${new Date(at * 1000).toISOString().replace(".000", "")}${expired ? " (expired)" : ""}`;
}

export function define(command: Command, toAction: ToAction): void {
  command
    .enablePositionalOptions()
    .addHelpText(
      "after",
      "\nA key lets a program call the daemon over HTTP. Give it to the program as FORKD_TOKEN.\n" +
        examples(
          "forkd keys create ci --scope run --expires 30d --max-sandboxes 20",
          "forkd keys ls",
          "forkd keys rm ci",
        ),
    );
  const add = (name: string, summary: string) => addCommonOptions(command.command(name).description(summary));
  addRuleOptions(add("create", "Create a key and print its text, once"))
    .argument("<name>", "Name of the key, which is the owner of its sandboxes")
    .addOption(
      new Option("--scope <scope>", "Allow lists (read), also sandboxes (run), or all (admin)")
        .choices(["read", "run", "admin"])
        .default("run"),
    )
    .option("--expires <when>", "Expire after 30d or at 2027-01-31T12:00:00Z", (text) => parseExpiry(text))
    .option("--max-sandboxes <count>", "Limit the number of its sandboxes", wholeNumber(1, 100_000))
    .option("--max-memory-mib <mib>", "Limit the memory of all its sandboxes", wholeNumber(1, 1 << 30))
    .option("--secret <name>", "Allow only this secret (repeatable, default: all)", collectText)
    .addHelpText(
      "after",
      "\nSandboxes of the key connect at most where --network, --allow and --deny say, whatever they ask for.\n" +
        examples(
          "forkd keys create ci --scope run --expires 30d",
          "forkd keys create bot --network filtered --allow preset:pypi --secret API_KEY",
          "key=$(forkd keys create dashboard --scope read -q)",
        ),
    )
    .action(toAction(create));
  addTableOption(add("ls", "List keys, without their text"))
    .addHelpText("after", examples("forkd keys ls", "forkd keys ls --json | jq -r '.[].name'"))
    .action(toAction(ls));
  add("rm", "Remove keys and close their open requests")
    .argument("<name...>", "Keys")
    .addHelpText("after", examples("forkd keys rm ci"))
    .action(toAction(rm));
}

async function create(cli: Cli, options: CreateOptions, name: string): Promise<void> {
  const { scope, expires, maxSandboxes, maxMemoryMib, secret: secrets } = options;
  const ceilings = { maxSandboxes, maxMemoryMib, network: readPolicy(options), secrets };
  const request = { scope, expiresAt: expires, ...ceilings, signal: cli.signal };
  const forkd = await cli.daemon();
  const created = wireOf<CreatedKey>(await forkd.keys.create(name, request));
  if (cli.out.json) return cli.out.document(created);
  cli.out.line(created.key);
  const until = created.expires_at_unix === undefined ? "" : `, until ${describeExpiry(created)}`;
  cli.out.note(`Key ${name} has the scope ${created.scope}${until}. It is not shown again.`);
}

async function ls(cli: Cli): Promise<void> {
  const forkd = await cli.daemon();
  const keys = wireOf<KeyInfo[]>(await forkd.keys.list({ signal: cli.signal }));
  cli.out.list(keys, { columns, name: ({ name }) => name });
  if (keys.length === 0) cli.out.note("No keys. Run `forkd keys create NAME` to create one.");
}

async function rm(cli: Cli, _options: unknown, names: string[]): Promise<number> {
  const forkd = await cli.daemon();
  return forEach(cli.out, { items: names, name: "name", done: "removed" }, (name) =>
    forkd.keys.remove(name, { signal: cli.signal }),
  );
}
