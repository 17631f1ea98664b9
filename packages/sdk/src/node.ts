/** The part for Node: finds the daemon of this user and talks to it over its unix socket or TCP. */
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import http from "node:http";
import type https from "node:https";
import { homedir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import {
  advice,
  AppError,
  defaultDataDir as dataDirOf,
  defaultRuntimeDir as runtimeDirOf,
  errorMessage,
} from "@forkd/contract/wire";
import type { DirectoryFacts } from "@forkd/contract";
import { forDataDir, readDaemonRecord, type DaemonRecord } from "./node/daemon-record.ts";
import { cancelled, fromFailure } from "./errors.ts";
import type { ConnectOptions } from "./connect-options.ts";
import { setDefaultConnector } from "./connector.ts";
import { refuseUnknown } from "./convert/request.ts";
import { Forkd } from "./forkd.ts";
import type { Transport, TransportRequest, TransportResponse } from "./transport.ts";

/** Where a daemon listens. */
export type Target =
  | {
      /** Unix socket of the daemon. */
      socket: string;
    }
  | {
      /** Address of the daemon, such as "https://127.0.0.1:8889". */
      url: string;
      /** Token or key; default: none. */
      token?: string | undefined;
      /** PEM text of the only certificates to trust; default: those that Node trusts. */
      ca?: string | undefined;
    };
export * from "./index.ts";
export { readDaemonRecord, type DaemonRecord } from "./node/daemon-record.ts";
type Environment = Readonly<Record<string, string | undefined>>;

/** Shorter than the daemon's limit (65 s), so that no request uses a connection that is being closed. */
const idleMs = 55_000;
/** ms to connect; a host that drops packets would otherwise hold a call for minutes */
const connectMs = 10_000;
/** Without TLS no server has a name. Node 20 would look for one, with patterns that take 5 ms to compile. */
const noName = { servername: "" };

/** Finds the daemon of this user; does not contact it yet. */
export async function connect(options: ConnectOptions = {}): Promise<Forkd> {
  refuseUnknown("connect", options, ["socket", "url", "token", "caFile", "dataDir"]);
  const target = await findDaemon(options, process.env);
  const transport = nodeTransport(target);
  const dataDir = wantedDataDir(options, process.env);
  if (dataDir === undefined || !("socket" in target)) return new Forkd({ transport });
  return new Forkd({ transport: forDataDir(transport, { dataDir, socket: target.socket }) });
}

setDefaultConnector(() => connect());

/** Uses the first of: options, FORKD_SOCKET, FORKD_URL, the daemon's record, the default socket. */
export async function findDaemon(options: ConnectOptions, env: Environment): Promise<Target> {
  const dataDir = options.dataDir ?? defaultDataDir(env);
  if (options.socket !== undefined) return { socket: options.socket };
  if (options.url !== undefined) return urlTarget(options.url, { options, env, dataDir });
  if (env["FORKD_SOCKET"] && options.dataDir === undefined) return { socket: env["FORKD_SOCKET"] };
  if (env["FORKD_URL"] && options.dataDir === undefined) {
    return urlTarget(env["FORKD_URL"], { options, env, dataDir });
  }
  const { record } = await readDaemonRecord(dataDir);
  return { socket: record.socket ?? join(defaultRuntimeDir(env), "forkd.sock") };
}

/** The data directory whose daemon is asked for; undefined if a socket or an address names the daemon. */
function wantedDataDir(options: ConnectOptions, env: Environment): string | undefined {
  if (options.socket !== undefined || options.url !== undefined) return undefined;
  if (options.dataDir !== undefined) return options.dataDir;
  return env["FORKD_SOCKET"] || env["FORKD_URL"] ? undefined : env["FORKD_DATA_DIR"] || undefined;
}

/** The data directory of this user's daemon unless a setting names another. */
export function defaultDataDir(env: Environment): string {
  return dataDirOf(factsOf(env));
}

/** The directory for sockets of this user's daemon unless a setting names another. */
export function defaultRuntimeDir(env: Environment): string {
  return runtimeDirOf(factsOf(env));
}

function factsOf(env: Environment): DirectoryFacts {
  return { env, uid: process.getuid?.() ?? 0, home: homedir() };
}

type Sources = { options: ConnectOptions; env: Environment; dataDir: string };

async function urlTarget(url: string, sources: Sources): Promise<Target> {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed === undefined || !["http:", "https:"].includes(parsed.protocol)) {
    throw new AppError("invalid_request", `"${url}" is not the address of a daemon`, {
      remedy: advice(`Give an address with http:// or https://, such as ${exampleOf(url)}.`),
    });
  }
  const caFile = sources.options.caFile ?? (sources.env["FORKD_CA"] || undefined);
  const token = await findToken(parsed, sources);
  if (parsed.protocol === "http:" || caFile === undefined) return { url, token };
  const ca = await readIfPresent(caFile);
  if (ca === undefined)
    throw new AppError(
      "invalid_request",
      `Cannot read the certificates to trust: there is no file ${caFile}`,
      {
        remedy: advice("Set FORKD_CA or `caFile` to a PEM file."),
      },
    );
  return { url, token, ca };
}

/** "127.0.0.1:8889" lacks only the scheme. */
function exampleOf(text: string): string {
  const guess = `http://${text}`;
  return /^[\w.[\]:-]+$/.test(text) && URL.canParse(guess) ? guess : "http://127.0.0.1:8889";
}

/** Never sends the token of the local daemon to another machine. */
async function findToken(url: URL, { options, env, dataDir }: Sources): Promise<string | undefined> {
  const given = options.token ?? (env["FORKD_TOKEN"] || undefined);
  if (given !== undefined) return given;
  const { record } = await readDaemonRecord(dataDir);
  if (!isOwnDaemon(url, record)) return undefined;
  return (await readIfPresent(record.token_file ?? join(dataDir, "token")))?.trim();
}

/** Trusts only the daemon's own record: a loopback port may belong to another user or to a tunnel. */
function isOwnDaemon(url: URL, record: DaemonRecord): boolean {
  const own = record.url !== undefined && URL.canParse(record.url) ? new URL(record.url) : undefined;
  if (own?.host === url.host) return true;
  return own !== undefined && isLoopback(url.hostname) && isLoopback(own.hostname) && own.port === url.port;
}

function isLoopback(hostname: string): boolean {
  return /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/i.test(hostname);
}

/** Refuses other kinds of files: reading a pipe could wait forever. */
async function readIfPresent(path: string): Promise<string | undefined> {
  try {
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    if (!(await file.stat()).isFile()) throw new Error("it is not a regular file");
    return await file.readFile("utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw new AppError("daemon_unreachable", `Cannot read ${path}: ${errorMessage(error)}`, { cause: error });
  }
}

/** A transport that keeps its connections open. */
export function nodeTransport(target: Target): Transport {
  const url = "url" in target ? new URL(target.url) : undefined;
  const secure = url?.protocol === "https:";
  const ca = "url" in target && target.ca !== undefined ? { ca: target.ca } : {};
  const dial = secure ? secureDial(ca) : plainDial();
  const place = url
    ? {
        host: url.hostname.replace(/^\[|\]$/g, ""),
        port: url.port === "" ? (secure ? 443 : 80) : Number(url.port),
      }
    : { socketPath: "socket" in target ? target.socket : "" };
  const name = "socket" in target ? target.socket : target.url;
  const prefix = url?.pathname.replace(/\/+$/, "") ?? "";
  const authorization = "url" in target && target.token ? { authorization: `Bearer ${target.token}` } : {};
  const tunnel = async (request: TransportRequest) => {
    const { openTunnel } = await import("./node/tunnel.ts");
    const headers = { "user-agent": "forkd-sdk", ...request.headers, ...authorization };
    const { signal } = request;
    return openTunnel(
      { place, secure, ...ca, target: name, connectMs },
      { ...request, path: prefix + request.path, headers },
      (outgoing, incoming) => answerOf(outgoing, incoming, { target: name, signal }),
    );
  };
  const send = async (request: TransportRequest) => {
    const { signal } = request;
    const open = await dial();
    if (signal?.aborted) throw cancelled(signal.reason);
    const outgoing = open({
      ...place,
      method: request.method,
      path: prefix + request.path,
      headers: { "user-agent": "forkd-sdk", ...request.headers, ...authorization, ...lengthOf(request.body) },
      ...(signal && { signal }),
    });
    return exchange(outgoing, request, name);
  };
  return Object.assign(send, { tunnel });
}

type Dial = (options: https.RequestOptions) => http.ClientRequest;

function plainDial(): () => Dial {
  const agent = new http.Agent({ keepAlive: true, timeout: idleMs, ...noName });
  return () => (options) => http.request({ ...options, agent });
}

/** Most programs talk to a daemon on the same host, so TLS is loaded with the first request that needs it. */
function secureDial(ca: { ca?: string }): () => Promise<Dial> {
  let loaded: Promise<Dial> | undefined;
  return () =>
    (loaded ??= import("node:https").then(({ default: tls }) => {
      const agent = new tls.Agent({ keepAlive: true, timeout: idleMs, minVersion: "TLSv1.2", ...ca });
      return (options) => tls.request({ ...options, agent });
    }));
}

function lengthOf(body: TransportRequest["body"]): Record<string, number> {
  if (typeof body === "string") return { "content-length": Buffer.byteLength(body) };
  return body instanceof Uint8Array ? { "content-length": body.byteLength } : {};
}

function exchange(
  outgoing: http.ClientRequest,
  request: TransportRequest,
  target: string,
): Promise<TransportResponse> {
  const { body, signal } = request;
  let sourceFailure: { error: unknown } | undefined;
  outgoing.once("socket", (socket) => {
    if (!socket.connecting) return;
    const late = () => outgoing.destroy(new Error(`no connection within ${connectMs / 1000} s`));
    const timer = setTimeout(late, connectMs);
    const done = () => clearTimeout(timer);
    socket.once("connect", done).once("close", done);
  });
  const answered = new Promise<TransportResponse>((resolve, reject) => {
    outgoing.once("response", (incoming) => resolve(answerOf(outgoing, incoming, { target, signal })));
    // Stays attached: a request can fail after its response has begun.
    outgoing.on("error", (error) =>
      reject(sourceFailure ? sourceFailure.error : fromFailure(error, { target, phase: "connect", signal })),
    );
  });
  if (body === undefined || typeof body === "string" || body instanceof Uint8Array) {
    outgoing.end(body);
  } else {
    const source = Readable.from(body, { objectMode: false });
    source.once("error", (error) => (sourceFailure ??= { error }));
    // The "error" listener above sees failures of both sides; after an early answer the rest does not matter.
    pipeline(source, outgoing).catch(() => undefined);
  }
  return answered;
}

function answerOf(
  outgoing: http.ClientRequest,
  incoming: http.IncomingMessage,
  context: { target: string; signal: AbortSignal | undefined },
): TransportResponse {
  const failed = (error: unknown) => fromFailure(error, { ...context, phase: "answer" });
  return {
    status: incoming.statusCode ?? 0,
    headers: incoming.headers,
    text: () =>
      new Promise((resolve, reject) => {
        const chunks: Buffer[] = [];
        incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
        incoming.once("end", () => {
          // The daemon answered before the end of the content and does not read the rest.
          if (!outgoing.writableEnded) outgoing.destroy();
          resolve(Buffer.concat(chunks).toString("utf8"));
        });
        incoming.once("error", (error) => reject(failed(error)));
      }),
    body: chunksOf(incoming, failed),
  };
}

async function* chunksOf(
  incoming: http.IncomingMessage,
  failed: (error: unknown) => Error,
): AsyncGenerator<Uint8Array> {
  const chunks: AsyncIterator<Buffer> = incoming.iterator();
  try {
    for (;;) {
      const { done, value } = await chunks.next().catch((error: unknown) => {
        throw failed(error);
      });
      if (done) return;
      yield value;
    }
  } finally {
    incoming.destroy();
  }
}
