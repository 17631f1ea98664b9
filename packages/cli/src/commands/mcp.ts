/** Serves the tools of forkd to MCP clients, over stdio or HTTP. */
import { readFile } from "node:fs/promises";
import type { Forkd } from "@forkd/sdk";
import { InvalidArgumentError, type Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { collectText, parseLifetime, usage } from "../options/arguments.ts";
import { examples } from "../options/help.ts";
import { ownVersion } from "../version.ts";

type Listen = { readonly host: string; readonly port: number };
type Options = {
  http?: Listen;
  keyFile?: string;
  allowHost?: string[];
  tlsCert?: string;
  tlsKey?: string;
  killOnExit?: true;
  ttl?: number;
};

export function define(command: Command, toAction: ToAction): void {
  command
    .option("--http <host:port>", "Serve over HTTP at /mcp (default: over stdio)", parseListen)
    .option("--key-file <file>", "Accept only the key in this file, not keys of the daemon")
    .option("--allow-host <name>", "Accept this Host and Origin too (repeatable)", collectText)
    .option("--tls-cert <file>", "Use TLS with this PEM certificate")
    .option("--tls-key <file>", "Private key of the certificate")
    .option("--kill-on-exit", "Kill sandboxes that it created when it ends")
    .option("--ttl <duration>", "Default time to live of created sandboxes (default: none)", parseLifetime)
    .addHelpText(
      "after",
      "\nAn MCP client starts `forkd mcp` itself: its configuration has the command and the argument mcp.\n" +
        examples(
          "forkd mcp --http 127.0.0.1:0                                    # until Ctrl-C",
          "forkd mcp --http 127.0.0.1:0 --kill-on-exit --ttl 8h            # until Ctrl-C",
        ),
    )
    .action(toAction(mcp));
}

/** "127.0.0.1:8890" or "[::1]:8890" */
function parseListen(text: string): Listen {
  const [, bracketed, plain, port] = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]+)):(\d{1,5})$/i.exec(text) ?? [];
  const host = bracketed ?? plain;
  if (host === undefined || Number(port) > 65_535)
    throw new InvalidArgumentError('It must be an address and a port, such as "127.0.0.1:8890".');
  return { host, port: Number(port) };
}

async function mcp(cli: Cli, options: Options): Promise<void> {
  const { http, ttl: ttlSecs, killOnExit = false } = options;
  // The daemon and this module are loaded when a tool needs them: a client waits for the list of tools.
  const common = {
    connect: () => cli.daemon(),
    version: ownVersion(),
    log: (text: string) => cli.out.report(`forkd mcp: ${text}`),
    signal: cli.signal,
    killOnExit,
    ttlSecs,
  };
  if (http === undefined) {
    refuseHttpOptions(options);
    const { serveStdio } = await import("@forkd/mcp");
    return serveStdio(common);
  }
  const { serveHttp } = await import("@forkd/mcp");
  await serveHttp({
    ...common,
    ...http,
    keys: await keyRule(cli, options),
    tls: await readTls(options),
    allowHosts: options.allowHost ?? [],
    onReady: (url) => cli.out.note(`Serving MCP at ${url}`),
  });
}

function refuseHttpOptions(options: Options): void {
  const given = {
    "--key-file": options.keyFile,
    "--allow-host": options.allowHost,
    "--tls-cert": options.tlsCert,
  };
  for (const [name, value] of Object.entries(given))
    if (value !== undefined) throw usage(`${name} needs --http`);
}

/** The key of a file, or the keys of the daemon: those work only over its TCP address. */
async function keyRule(cli: Cli, { keyFile }: Options) {
  if (keyFile !== undefined) return { kind: "own", key: (await readFile(keyFile, "utf8")).trim() } as const;
  const { connect, defaultDataDir, readDaemonRecord } = await import("@forkd/sdk/node");
  // Starts a local daemon that is not running: its record has its address.
  if (cli.environment.url === undefined) await cli.daemon();
  const { record } = await readDaemonRecord(defaultDataDir(cli.environment.variables));
  const url = cli.environment.url ?? record.url;
  if (url === undefined)
    throw usage("The daemon has no TCP address, which keys need: give --key-file, or set FORKD_LISTEN");
  return { kind: "daemon", connect: (key: string): Promise<Forkd> => connect({ url, token: key }) } as const;
}

async function readTls({ tlsCert, tlsKey }: Options): Promise<{ cert: string; key: string } | undefined> {
  if ((tlsCert === undefined) !== (tlsKey === undefined)) throw usage("--tls-cert and --tls-key go together");
  if (tlsCert === undefined || tlsKey === undefined) return undefined;
  return { cert: await readFile(tlsCert, "utf8"), key: await readFile(tlsKey, "utf8") };
}
