import type { OpenedPort } from "@forkd/contract";
import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import { parseLifetime, usage } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import { listPorts } from "../views/port-table.ts";

type Options = { public?: true; ttl?: number; close?: true };

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .argument("<id>", "Id or unique prefix of a sandbox, or a workspace")
    .argument("[port]", "TCP port in the guest; without it, list the open ports", parsePort)
    .option("--public", "Let everyone who can reach the daemon use its address")
    .option("--ttl <duration>", "Close the port after this time", parseLifetime)
    .option("--close", "Close the port and the connections to its address")
    .addHelpText(
      "after",
      "\nPrints the address of the port. Unless it is public, the address has a token that a browser\n" +
        "keeps as a cookie. Opening a port again changes it and keeps its token.\n" +
        examples(
          "forkd port 3f2a 3000",
          "forkd port 3f2a 3000 --public --ttl 1h",
          "forkd port 3f2a",
          "forkd port 3f2a 3000 --close",
        ),
    )
    .action(toAction(openPort));
}

export function parsePort(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (port < 1 || port > 65_535) throw usage("It must be a port, 1 to 65535.");
  return port;
}

async function openPort(cli: Cli, options: Options, prefix: string, port?: number): Promise<void> {
  const { public: isPublic, ttl, close } = options;
  if (port === undefined) {
    if (isPublic || ttl !== undefined || close) throw usage("--public, --ttl and --close need a port");
    return listPorts(cli, prefix);
  }
  if (close && (isPublic || ttl !== undefined)) throw usage("--close cannot be used with --public or --ttl");
  const sandbox = await cli.sandbox(prefix);
  const { signal } = cli;
  if (close) {
    await sandbox.ports.close(port, { signal });
    return cli.out.note(`Closed port ${port} of ${cli.out.id(sandbox.id)}.`);
  }
  const ttlMs = ttl === undefined ? undefined : ttl * 1000;
  const opened = wireOf<OpenedPort>(await sandbox.ports.open(port, { public: isPublic, ttlMs, signal }));
  if (cli.out.json) return cli.out.document(opened);
  cli.out.line(addressOf(opened));
  if (opened.url === undefined)
    cli.out.note(
      "This is a path of the HTTP API: the daemon does not listen on TCP, so the port has no address.",
    );
}

/** The address that a browser can open. */
function addressOf({ url, path, token }: OpenedPort): string {
  if (url === undefined) return path;
  return token === undefined ? url : `${url}?forkd_token=${token}`;
}
