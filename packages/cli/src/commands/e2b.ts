import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { AppError } from "@forkd/contract/wire";
import type { Forkd } from "@forkd/sdk";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { addCommonOptions, examples } from "../options/help.ts";

export function define(command: Command, toAction: ToAction): void {
  command
    .enablePositionalOptions()
    .addHelpText(
      "after",
      "\nThe official SDKs of E2B use this daemon when three variables are set.\n" +
        examples('eval "$(forkd e2b env)"'),
    );
  addCommonOptions(command.command("env").description("Print the variables for the SDKs of E2B"))
    .addHelpText(
      "after",
      "\nThe key is FORKD_TOKEN if it is set, otherwise the token of the local daemon.\n" +
        examples('eval "$(forkd e2b env)"', "forkd e2b env --json"),
    )
    .action(toAction(env));
}

async function env(cli: Cli): Promise<void> {
  const forkd = await cli.daemon();
  const { url, secret } = await accessOf(cli, forkd);
  const variables = {
    E2B_API_URL: url,
    E2B_SANDBOX_URL: url,
    // Python's client takes no other form.
    E2B_API_KEY: `e2b_${Buffer.from(secret).toString("hex")}`,
  };
  if (cli.out.json) return cli.out.document(variables);
  for (const [name, value] of Object.entries(variables)) cli.out.line(`export ${name}='${value}'`);
}

/** Where the daemon listens on TCP, and with what it can be called there. */
async function accessOf(cli: Cli, forkd: Forkd): Promise<{ url: string; secret: string }> {
  const { url: remote, variables } = cli.environment;
  const given = variables["FORKD_TOKEN"] || undefined;
  if (remote !== undefined && given !== undefined) return { url: remote.replace(/\/+$/, ""), secret: given };
  const { settings } = await forkd.config({ signal: cli.signal });
  const dataDir = String(settings.find(({ name }) => name === "data_dir")?.value ?? "");
  const record = await readRecord(join(dataDir, "daemon.json"));
  const url = remote?.replace(/\/+$/, "") ?? record.url;
  if (!url)
    throw new AppError("host_not_ready", "Cannot use the SDKs of E2B: the daemon does not listen on TCP", {
      remedy: { action: "change_setting", setting: "listen", to: "127.0.0.1:8889" },
    });
  return { url, secret: given ?? (await readToken(record.token_file ?? join(dataDir, "token"))) };
}

type DaemonRecord = { readonly url?: string | null; readonly token_file?: string };

/** The record that the daemon keeps of itself. */
async function readRecord(path: string): Promise<DaemonRecord> {
  return JSON.parse(await readFrom(path)) as DaemonRecord;
}

async function readToken(path: string): Promise<string> {
  return (await readFrom(path)).trim();
}

async function readFrom(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    throw new AppError("unauthenticated", `Cannot read ${path}`, {
      remedy: { action: "authenticate" },
      cause: error,
    });
  }
}
