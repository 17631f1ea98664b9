/** A real server with handlers of the test, and plain requests to it. */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { nullLogger, Scope, type Logger } from "@forkd/base";
import { AppError, routes, type RouteName } from "@forkd/contract";
import { AuditLog } from "../src/audit/audit-log.ts";
import { Audit } from "../src/audit/audit.ts";
import { Gate, type GateOptions } from "../src/access/gate.ts";
import { KeyStore } from "../src/access/key-store.ts";
import { keyHandlers } from "../src/handlers/keys.ts";
import type { BodyPace } from "../src/http/body/json-body.ts";
import { requestListener, upgradeListener, type ExchangeOptions } from "../src/http/exchange.ts";
import type { Handlers } from "../src/http/handlers.ts";
import { openServer, type ServerOptions } from "../src/http/server.ts";
import type { PortServer } from "../src/ports/port-server.ts";

export const token = "0123456789abcdef0123456789abcdef";
export const sandboxId = "sb-0123456789abcdef01234567";

export function handlersWith(some: Partial<Handlers>): Handlers {
  const missing = (name: string) => () => {
    throw new AppError("unsupported", `The test has no handler for ${name}`);
  };
  const all = Object.fromEntries(Object.keys(routes).map((name) => [name, missing(name)]));
  return { ...(all as unknown as Record<RouteName, never>), ...some };
}

export type TestServer = AsyncDisposable & {
  socket: string;
  url: string;
  close: (drainMs: number) => Promise<void>;
  dir: string;
  keys: KeyStore;
  auditFile: string;
  auditLog: AuditLog;
  gate: Gate;
  /** everything that was written down so far */
  audited: () => Promise<Record<string, unknown>[]>;
};
export type TestOptions = {
  log?: Logger;
  gate?: Partial<GateOptions>;
  audit?: { reads?: boolean; commands?: boolean };
  server?: Partial<ServerOptions>;
  pace?: BodyPace;
  watch?: ExchangeOptions["watch"];
  observe?: ExchangeOptions["observe"];
  /** makes the server of ports */
  ports?: (gate: Gate) => PortServer;
};

export async function temporaryDir(scope: Scope): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-test-"));
  scope.defer(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

export async function startServer(
  some: Partial<Handlers>,
  log: Logger = nullLogger(),
  options: TestOptions = {},
): Promise<TestServer> {
  const scope = new Scope();
  const dir = await temporaryDir(scope);
  const socket = join(dir, "run", "forkd.sock");
  const keys = await KeyStore.open(dir);
  const auditFile = join(dir, "audit.jsonl");
  const auditLog = scope.use(await AuditLog.open({ path: auditFile, log }));
  const audit = new Audit({ log: auditLog, reads: true, commands: false, ...options.audit });
  const gate = new Gate({ token, keys, ...options.gate });
  const handlers = handlersWith({ ...keyHandlers({ keys }), ...some });
  const { pace, watch, observe } = options;
  const ports = options.ports?.(gate);
  const exchange = { handlers, ports, version: "1.2.3", gate, audit, log, pace, watch, observe };
  const listener = requestListener(exchange);
  const server = scope.use(
    await openServer({
      socket,
      listen: "127.0.0.1:0",
      listener,
      ...(ports && {
        onUpgrade: upgradeListener(exchange),
        onExpect: (incoming) => ports.takesExpect(incoming),
      }),
      ...options.server,
    }),
  );
  return {
    socket,
    url: server.url ?? "",
    close: (drainMs) => server.close(drainMs),
    dir,
    keys,
    auditFile,
    auditLog,
    gate,
    audited: async () => {
      await auditLog.settled();
      return readLines(auditFile);
    },
    [Symbol.asyncDispose]: () => scope[Symbol.asyncDispose](),
  };
}

export async function readLines(file: string): Promise<Record<string, unknown>[]> {
  const text = await readFile(file, "utf8");
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

/** `json` is read freely; what it holds is what the tests are about */
// oxlint-disable-next-line typescript/no-explicit-any
export type Answer = { status: number; headers: http.IncomingHttpHeaders; text: string; json: any };

export function send(
  where: string,
  path: string,
  options: { method?: string; headers?: Record<string, string>; body?: string | Buffer } = {},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = open(where, path, options);
    request.once("error", reject);
    request.once("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.once("error", reject);
      response.once("end", () => {
        const text = Buffer.concat(chunks).toString("utf8");
        const isJson = text !== "" && response.headers["content-type"] === "application/json";
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          text,
          json: isJson ? JSON.parse(text) : undefined,
        });
      });
    });
    request.end(options.body);
  });
}

/** A request that is not ended; `where` is a socket's path or a URL. */
export function open(
  where: string,
  path: string,
  options: { method?: string; headers?: Record<string, string> } = {},
): http.ClientRequest {
  const { method = "GET", headers = {} } = options;
  if (where.startsWith("http://")) return http.request(where + path, { method, headers, agent: false });
  return http.request({ socketPath: where, path, method, headers, agent: false });
}

export function post(
  where: string,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  return send(where, path, { method: "POST", body: JSON.stringify(body), headers });
}

export { createDeferred as deferred } from "@forkd/base";
