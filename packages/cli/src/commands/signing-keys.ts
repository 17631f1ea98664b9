import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { usage } from "../options/arguments.ts";
import { addCommonOptions, addTableOption, examples } from "../options/help.ts";
import { createKey, keyDirectory, listKeys, readKey, type SigningKey } from "../signing/key-store.ts";
import type { Column } from "../terminal/table.ts";

type CreateOptions = { passphrase?: true; passphraseFile?: string };

const columns: readonly Column<SigningKey>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "FINGERPRINT", value: ({ fingerprint }) => fingerprint },
  { title: "ENCRYPTED", value: ({ isEncrypted }) => (isEncrypted ? "yes" : "no"), drop: 2 },
  { title: "FILE", value: ({ file }) => file, drop: 1 },
];

export function define(command: Command, toAction: ToAction): void {
  command
    .enablePositionalOptions()
    .addHelpText(
      "after",
      "\n`forkd push --sign` signs with the private key, which stays with you. Others pin the public key.\n" +
        examples(
          "forkd signing-keys create",
          "forkd signing-keys show > forkd.pub",
          "forkd trust pin registry.example.com/team/python --key forkd.pub",
        ),
    );
  const add = (name: string, summary: string) => addCommonOptions(command.command(name).description(summary));
  add("create", "Create an Ed25519 key to sign snapshots with")
    .argument("[name]", 'Name of the key (default: "default")')
    .option("--passphrase", "Encrypt the private key; ask for a passphrase")
    .option("--passphrase-file <file>", "Encrypt the private key with the passphrase in this file")
    .addHelpText(
      "after",
      examples("forkd signing-keys create", "forkd signing-keys create release --passphrase"),
    )
    .action(toAction(create));
  add("show", "Print the public key")
    .argument("[name]", 'Name of the key (default: "default")')
    .addHelpText(
      "after",
      examples("forkd signing-keys show", "forkd signing-keys show release > release.pub"),
    )
    .action(toAction(show));
  addTableOption(add("ls", "List your keys"))
    .addHelpText("after", examples("forkd signing-keys ls", "forkd signing-keys ls -q"))
    .action(toAction(ls));
}

/** The names of the HTTP API, although the keys never get there. */
function wire({ name, fingerprint, publicKey, file, isEncrypted }: SigningKey): object {
  return { name, fingerprint, public_key: publicKey, file, encrypted: isEncrypted };
}

async function create(cli: Cli, options: CreateOptions, name = "default"): Promise<void> {
  const passphrase = await newPassphrase(cli, options);
  const key = await createKey(keyDirectory(cli.environment), name, passphrase);
  if (cli.out.json) return cli.out.document(wire(key));
  cli.out.line(key.fingerprint);
  cli.out.note(
    `Key ${name} is in ${key.file}. Keep it to yourself; \`forkd signing-keys show ${name}\` prints its public key.`,
  );
}

async function newPassphrase(
  cli: Cli,
  { passphrase, passphraseFile: file }: CreateOptions,
): Promise<string | undefined> {
  if (!passphrase && file === undefined) return undefined;
  const { readSecret } = await import("../terminal/secret-input.ts");
  const { interrupts } = cli;
  const given = await readSecret({ file, prompt: "Passphrase (not shown): ", interrupts });
  if (file !== undefined || !process.stdin.isTTY) return given;
  const again = await readSecret({ file, prompt: "The same again: ", interrupts });
  if (again !== given) throw usage("The passphrases differ");
  return given;
}

async function show(cli: Cli, _options: unknown, name = "default"): Promise<void> {
  const key = await readKey(keyDirectory(cli.environment), name);
  if (cli.out.json) return cli.out.document(wire(key));
  cli.out.line(key.publicKey.trimEnd());
}

async function ls(cli: Cli): Promise<void> {
  const keys = await listKeys(keyDirectory(cli.environment));
  if (cli.out.json) return cli.out.document(keys.map(wire));
  cli.out.list(keys, { columns, name: ({ name }) => name });
  if (keys.length === 0) cli.out.note("No keys. Run `forkd signing-keys create` to create one.");
}
