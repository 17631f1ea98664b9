/** Serves MCP over stdin and stdout. Everything that is not the protocol goes to stderr. */
import { randomBytes } from "node:crypto";
import { serveStdio as serve, StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { Backend } from "./backend.ts";
import type { ServeOptions } from "./options.ts";
import { makeServer } from "./server.ts";

/** Resolves when the client has closed stdin, or `signal` aborts. */
export async function serveStdio(options: ServeOptions): Promise<void> {
  const { connect, ttlSecs, version, log, signal, killOnExit } = options;
  const backend = new Backend({ connect, ttlSecs, label: `stdio-${randomBytes(4).toString("hex")}` });
  const transport = new StdioServerTransport();
  const closed = new Promise<void>((resolve) => {
    process.stdin.once("close", resolve).once("end", resolve);
    signal.addEventListener("abort", () => resolve(), { once: true });
    if (signal.aborted) resolve();
  });
  const handle = serve(() => makeServer(backend, { version, log }), {
    transport,
    onerror: (error) => log(error.message),
  });
  // No deadline: the server runs as long as its client.
  await closed;
  await handle.close();
  await backend.settled();
  if (killOnExit) await killCreated(backend, log);
}

export async function killCreated(backend: Backend, log: (text: string) => void): Promise<void> {
  try {
    const left = await backend.killCreated();
    if (left.length > 0) log(`Could not kill ${left.join(", ")}`);
  } catch (error) {
    log(`Could not kill the sandboxes: ${String(error)}`);
  }
}
