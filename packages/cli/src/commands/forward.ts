import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { pipeline, type Duplex } from "node:stream";
import { advice, AppError, errorMessage, toAppError } from "@forkd/contract/wire";
import type { Sandbox } from "@forkd/sdk";
import type { Command } from "commander";
import { usage } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import { untilInterrupted } from "../terminal/interrupts.ts";
import { parsePort } from "./port.ts";

/** `local` 0: any free port */
type Pair = { readonly local: number; readonly remote: number };

const address = "127.0.0.1";
/** ms in which the same failure of a connection is reported once */
const sameReportMs = 5000;

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .argument("<id>", "Id or unique prefix of a sandbox, or a workspace")
    .argument("<ports...>", "PORT, LOCAL:PORT, or 0:PORT for any free local port", collectPair)
    .addHelpText(
      "after",
      `\nListens on ${address} and connects each connection to the port in the guest, until Ctrl-C.\n` +
        "The port need not be open.\n" +
        examples(
          "forkd forward 3f2a 5432                         # until Ctrl-C",
          "forkd forward 3f2a 15432:5432 0:8000            # until Ctrl-C",
        ),
    )
    .action(toAction(forward));
}

function collectPair(text: string, previous: Pair[] = []): Pair[] {
  const [first = "", second, ...more] = text.split(":");
  if (more.length > 0) throw usage("It must be PORT or LOCAL:PORT.");
  const remote = parsePort(second ?? first);
  const local = second === undefined ? remote : first === "" || first === "0" ? 0 : parsePort(first);
  return [...previous, { local, remote }];
}

function forward(cli: Cli, _options: object, prefix: string, pairs: Pair[]): Promise<number | void> {
  return untilInterrupted(cli.interrupts, async () => {
    const sandbox = await cli.sandbox(prefix);
    const gone = new AbortController();
    const ended = AbortSignal.any([cli.signal, gone.signal]);
    const servers: Server[] = [];
    const sockets = new Set<Socket>();
    try {
      for (const pair of pairs) servers.push(await listen(cli, { sandbox, pair, sockets, gone }));
      // No deadline: it runs until the user or the end of the sandbox stops it.
      await new Promise<never>((_, reject) => {
        const stop = () => reject(ended.reason as Error);
        ended.addEventListener("abort", stop, { once: true });
        if (ended.aborted) stop();
      });
    } finally {
      for (const server of servers) server.close();
      for (const socket of sockets) socket.destroy();
    }
  });
}

type Forwarding = {
  readonly sandbox: Sandbox;
  readonly pair: Pair;
  readonly sockets: Set<Socket>;
  /** aborted when the sandbox does not exist any more */
  readonly gone: AbortController;
};

async function listen(cli: Cli, forwarding: Forwarding): Promise<Server> {
  const { sandbox, pair, sockets, gone } = forwarding;
  const report = onceInAWhile((text) => cli.out.report(text));
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket)).on("error", () => undefined);
    join(sandbox, pair.remote, socket).catch((error: unknown) => {
      socket.destroy();
      const failure = toAppError(error);
      if (failure.code === "sandbox_not_found" || failure.code === "sandbox_dead") gone.abort(failure);
      else if (!cli.signal.aborted) report(`forkd: ${failure.message}`);
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error) => reject(cannotListen(pair, error)));
    server.listen(pair.local, address, resolve);
  });
  const { port } = server.address() as AddressInfo; // it listens on TCP
  if (cli.out.json) await cli.out.event({ address, port, sandbox_id: sandbox.id, sandbox_port: pair.remote });
  else cli.out.line(`${address}:${port} -> ${cli.out.id(sandbox.id)}:${pair.remote}`);
  return server;
}

/** Resolves when the connection is closed in both directions. */
async function join(sandbox: Sandbox, port: number, socket: Socket): Promise<void> {
  const connecting = new AbortController();
  const leave = () => connecting.abort();
  socket.once("close", leave);
  // In Node, raw streams of the SDK are of this class.
  const guest = (await sandbox.ports.connect(port, { signal: connecting.signal })) as unknown as Duplex;
  socket.off("close", leave);
  guest.on("error", () => undefined);
  // A direction that ends passes its end on; one that fails closes both.
  pipeline(socket, guest, socket, () => undefined);
}

function cannotListen({ local, remote }: Pair, error: Error): AppError {
  const why = "code" in error && error.code === "EADDRINUSE" ? "the port is in use" : errorMessage(error);
  return new AppError("host_not_ready", `Cannot listen on ${address}:${local}: ${why}`, {
    remedy: advice(`Use another local port, such as 0:${remote} for any.`),
    cause: error,
  });
}

function onceInAWhile(write: (text: string) => void): (text: string) => void {
  let last = { text: "", at: Number.NEGATIVE_INFINITY };
  return (text) => {
    const now = performance.now();
    if (text === last.text && now - last.at < sameReportMs) return;
    last = { text, at: now };
    write(text);
  };
}
