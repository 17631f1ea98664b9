import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { usage } from "../options/arguments.ts";
import { examples } from "../options/help.ts";

type Options = { username?: string; passwordStdin?: true; plainHttp?: true; caFile?: string };

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<registry>", "Host of the registry, with its port")
    .option("-u, --username <name>", "Log in as this user")
    .option("--password-stdin", "Read the password or token from stdin")
    .option("--plain-http", "Connect without TLS")
    .option("--ca-file <file>", "Also trust the certificate authorities in this file")
    .addHelpText(
      "after",
      "\nThe registry checks the password before it is kept. It is kept where Docker keeps it: with the credential\n" +
        "helper that ~/.docker/config.json names, otherwise in that file. $REGISTRY_AUTH_FILE names another file.\n" +
        examples(
          "forkd login ghcr.io -u me",
          "printf '%s' \"$TOKEN\" | forkd login ghcr.io -u me --password-stdin",
        ),
    )
    .action(toAction(login));
}

async function login(cli: Cli, options: Options, text: string): Promise<void> {
  const { checkLogin, keepCredentials, parseRegistry } = await import("../hub/registry-access.ts");
  const registry = parseRegistry(text.replace(/^https?:\/\//, "").replace(/\/(v[12]\/?)?$/, ""));
  const username = options.username ?? (await askName(cli, registry));
  const isTyped = process.stdin.isTTY && !options.passwordStdin;
  if (!isTyped && !options.passwordStdin)
    throw usage("Give --password-stdin and write the password to stdin");
  const { readSecret } = await import("../terminal/secret-input.ts");
  const prompt = `Password of ${username} at ${registry} (not shown): `;
  const password = await readSecret({ file: undefined, prompt, interrupts: cli.interrupts });
  const { plainHttp, caFile } = options;
  const isChecked = await checkLogin({ registry, username, password, plainHttp, caFile }, cli.signal);
  const kept = await keepCredentials(registry, { username, password });
  if (cli.out.json) return cli.out.document({ registry, username, checked: isChecked, kept_in: kept });
  cli.out.line(registry);
  const how = isChecked ? `Logged in to ${registry} as ${username}.` : `${registry} asks for no password.`;
  const where = kept.startsWith("/") ? `${kept}, not encrypted` : kept;
  cli.out.note(`${how} The password is in ${where}.`);
}

async function askName(cli: Cli, registry: string): Promise<string> {
  if (!process.stdin.isTTY) throw usage("Give the name of the user with -u");
  const { createInterface } = await import("node:readline/promises");
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const name = (await lines.question(`User name at ${registry}: `, { signal: cli.signal })).trim();
    if (name === "") throw usage("The name is empty");
    return name;
  } finally {
    lines.close();
  }
}
