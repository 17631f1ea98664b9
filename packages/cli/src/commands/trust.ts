import type { TrustEntry, TrustPolicy } from "@forkd/contract";
import { wireOf, type Forkd } from "@forkd/sdk";
import { Argument, type Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { usage } from "../options/arguments.ts";
import { addCommonOptions, addTableOption, examples } from "../options/help.ts";
import { readPublicText } from "../signing/key-store.ts";
import type { Column } from "../terminal/table.ts";

const columns: readonly Column<TrustEntry>[] = [
  { title: "REPOSITORY", value: ({ repository }) => repository },
  { title: "POLICY", value: ({ policy, is_set }) => `${policy}${is_set ? " (set)" : ""}` },
  { title: "KEYS", value: ({ keys }) => keys.map(({ fingerprint }) => fingerprint).join(",") || "-" },
];

export function define(command: Command, toAction: ToAction): void {
  command
    .enablePositionalOptions()
    .addHelpText(
      "after",
      '\nA repository is REGISTRY/NAME, all below with "/*", or "*" for every one. The longest that fits applies.\n' +
        "With a pinned key, `forkd pull` refuses what the key has not signed.\n" +
        examples(
          "forkd trust pin registry.example.com/team/python --key team.pub",
          "forkd trust policy 'registry.example.com/*' require",
          "forkd trust ls",
        ),
    );
  const add = (name: string, summary: string) => addCommonOptions(command.command(name).description(summary));
  add("pin", "Pin a public key for a repository")
    .argument("<repository>", 'Repository with its registry; "/*" for all below')
    .requiredOption("--key <file>", "Public key of the publisher, as PEM")
    .addHelpText("after", examples("forkd trust pin registry.example.com/team/python --key team.pub"))
    .action(toAction(pin));
  add("unpin", "Remove a pinned key of a repository")
    .argument("<repository>", "Repository, as `forkd trust ls` shows it")
    .argument("<fingerprint>", "Fingerprint of the key, or its beginning")
    .addHelpText("after", examples("forkd trust unpin registry.example.com/team/python sha256:3f2a"))
    .action(toAction(unpin));
  add("policy", "Set what happens without a signature of a pinned key")
    .argument("<repository>", 'Repository with its registry; "/*" for all below')
    .addArgument(
      new Argument("<policy>", "Refuse, warn, do nothing, or as by default").choices([
        "require",
        "warn",
        "off",
        "default",
      ]),
    )
    .addHelpText(
      "after",
      "\nThe default is require with a pinned key and warn without one.\n" +
        examples("forkd trust policy 'registry.example.com/*' require", "forkd trust policy '*' default"),
    )
    .action(toAction(policy));
  addTableOption(add("ls", "List repositories with their keys and policies"))
    .addHelpText("after", examples("forkd trust ls", "forkd trust ls --json"))
    .action(toAction(ls));
  add("rm", "Remove the policy and all keys of a repository")
    .argument("<repository>", "Repository, as `forkd trust ls` shows it")
    .addHelpText("after", examples("forkd trust rm registry.example.com/team/python"))
    .action(toAction(rm));
}

function show(cli: Cli, entry: TrustEntry): void {
  if (cli.out.json) return cli.out.document(entry);
  cli.out.line(entry.repository);
  const keys = entry.keys.length === 1 ? "1 key" : `${entry.keys.length} keys`;
  cli.out.note(`The policy of ${entry.repository} is ${entry.policy}, with ${keys}.`);
}

async function pin(cli: Cli, { key }: { key: string }, repository: string): Promise<void> {
  const text = await readPublicText(key);
  const forkd = await cli.daemon();
  show(cli, wireOf(await forkd.trust.pin(repository, text, { signal: cli.signal })));
}

async function policy(
  cli: Cli,
  _options: unknown,
  repository: string,
  name: TrustPolicy | "default",
): Promise<void> {
  const forkd = await cli.daemon();
  const given = name === "default" ? null : name;
  show(cli, wireOf(await forkd.trust.setPolicy(repository, given, { signal: cli.signal })));
}

async function unpin(cli: Cli, _options: unknown, repository: string, text: string): Promise<void> {
  const forkd = await cli.daemon();
  const fingerprint = await fullFingerprint(cli, forkd, repository, text);
  await forkd.trust.unpin(repository, fingerprint, { signal: cli.signal });
  if (cli.out.json) return cli.out.document({ repository, fingerprint, removed: true });
  cli.out.line(fingerprint);
}

/** The daemon says that there is no such key if none begins like that. */
async function fullFingerprint(cli: Cli, forkd: Forkd, repository: string, text: string): Promise<string> {
  const wanted = text.startsWith("sha256:") ? text : `sha256:${text}`;
  const entries = await forkd.trust.list({ signal: cli.signal });
  const keys = entries.find((entry) => entry.repository === repository)?.keys ?? [];
  const found = keys.map(({ fingerprint }) => fingerprint).filter((each) => each.startsWith(wanted));
  if (found.length > 1) throw usage(`"${text}" is ambiguous: ${found.join(", ")}`);
  return found[0] ?? wanted;
}

async function ls(cli: Cli): Promise<void> {
  const forkd = await cli.daemon();
  const entries = wireOf<TrustEntry[]>(await forkd.trust.list({ signal: cli.signal }));
  cli.out.list(entries, { columns, name: ({ repository }) => repository });
  if (entries.length === 0)
    cli.out.note(
      "No keys are pinned, so that pulls only warn. Run `forkd trust pin REPOSITORY --key FILE` to pin one.",
    );
}

async function rm(cli: Cli, _options: unknown, repository: string): Promise<void> {
  const forkd = await cli.daemon();
  await forkd.trust.remove(repository, { signal: cli.signal });
  if (cli.out.json) return cli.out.document({ repository, removed: true });
  cli.out.line(repository);
}
