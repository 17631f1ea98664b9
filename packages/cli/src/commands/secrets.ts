import type { SecretInfo } from "@forkd/contract";
import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { collectText, usage } from "../options/arguments.ts";
import { addCommonOptions, addTableOption, examples } from "../options/help.ts";
import { forEach } from "../terminal/for-each.ts";
import { formatAge, type Column } from "../terminal/table.ts";

type SetOptions = { host?: string[]; header?: string; format?: string; fromFile?: string };

const columns: readonly Column<SecretInfo>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "HOSTS", value: ({ hosts }) => hosts.join(",") },
  { title: "HEADER", value: ({ header }) => header },
  { title: "FORMAT", value: ({ format }) => format, drop: 2 },
  { title: "CREATED", value: ({ created_at_unix }) => formatAge(created_at_unix), drop: 3 },
  { title: "PLACEHOLDER", value: ({ placeholder }) => placeholder, drop: 1 },
];

export function define(command: Command, toAction: ToAction): void {
  command
    .enablePositionalOptions()
    .addHelpText(
      "after",
      "\nA guest sees a placeholder in place of a secret. The value is filled in on the way to its hosts.\n" +
        examples(
          "printf s3cret | forkd secrets set API_KEY --host api.example.com",
          "forkd fork python-numpy --secret API_KEY --allow api.example.com:443",
          "forkd secrets rm API_KEY",
        ),
    );
  const add = (name: string, summary: string) => addCommonOptions(command.command(name).description(summary));
  add("set", "Add or replace a secret; the value comes from stdin")
    .argument("<name>", "Name: capital letters, digits and underscores")
    .option("--host <host>", "Send the value to this host (repeatable)", collectText)
    .option("--header <name>", "Fill it in in this header (default: Authorization)")
    .option("--format <text>", 'Send it in this form, "{}" is the value')
    .option("--from-file <file>", "Read the value from this file")
    .addHelpText(
      "after",
      "\nThe value is the whole of stdin, without its last line break. On a terminal, `set` asks for it and does\n" +
        "not show it. It cannot be an argument or a variable, which other processes can read.\n" +
        examples(
          "printf s3cret | forkd secrets set API_KEY --host api.example.com",
          "forkd secrets set GIT_TOKEN --host example.com --header X-Token --from-file token.txt",
        ),
    )
    .action(toAction(set));
  addTableOption(add("ls", "List secrets, without their values"))
    .addHelpText("after", examples("forkd secrets ls", "forkd secrets ls -q"))
    .action(toAction(ls));
  add("rm", "Remove secrets; sandboxes lose them at once")
    .argument("<name...>", "Secrets")
    .addHelpText("after", examples("forkd secrets rm API_KEY"))
    .action(toAction(rm));
}

async function set(cli: Cli, options: SetOptions, name: string): Promise<void> {
  const { host: hosts = [], header, format, fromFile } = options;
  if (hosts.length === 0) throw usage("Give the hosts that may receive the value with --host");
  const { readSecret } = await import("../terminal/secret-input.ts");
  const prompt = `Value of ${name} (not shown): `;
  const value = await readSecret({ file: fromFile, prompt, interrupts: cli.interrupts });
  const forkd = await cli.daemon();
  const secret = await forkd.secrets.set(name, { value, hosts, header, format, signal: cli.signal });
  if (cli.out.json) return cli.out.document(wireOf(secret));
  cli.out.line(secret.name);
  cli.out.note(
    `Secret ${secret.name} is for ${secret.hosts.join(", ")} in the header ${secret.header}. Guests see ${secret.placeholder}.`,
  );
}

async function ls(cli: Cli): Promise<void> {
  const forkd = await cli.daemon();
  const secrets = wireOf<SecretInfo[]>(await forkd.secrets.list({ signal: cli.signal }));
  cli.out.list(secrets, { columns, name: ({ name }) => name });
  if (secrets.length === 0) cli.out.note("No secrets. Run `forkd secrets set NAME --host HOST` to set one.");
}

async function rm(cli: Cli, _options: unknown, names: string[]): Promise<number> {
  const forkd = await cli.daemon();
  return forEach(cli.out, { items: names, name: "name", done: "removed" }, (name) =>
    forkd.secrets.remove(name, { signal: cli.signal }),
  );
}
