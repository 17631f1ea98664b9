/** Listening: a unix socket for the owner, and TCP on the loopback for those with the token. Closing and draining. */
import { mkdir, rm, stat } from "node:fs/promises";
import http from "node:http";
import net from "node:net";
import { dirname } from "node:path";
import { isErrno, Scope } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { answerBadHttp } from "./bad-http.ts";
import type { Via } from "./middleware/auth.ts";

export type ServerOptions = {
  readonly socket: string;
  /** "HOST:PORT" or "off" */
  readonly listen: string;
  readonly listener: (via: Via) => http.RequestListener;
};

export interface Server extends AsyncDisposable {
  /** undefined if TCP is off */
  readonly url: string | undefined;
  /** Takes no new requests, waits for the running ones, at most `drainMs`; then cuts them off. */
  close(drainMs: number): Promise<void>;
}

/** sun_path of a unix socket holds this many bytes before its NUL */
const maxSocketPath = 107;
const keepAliveMs = 65_000;
const headersMs = 60_000;
const maxConnections = 4096;

export async function openServer(options: ServerOptions): Promise<Server> {
  await using building = new Scope();
  const unix = httpServer(options.listener("unix"));
  await listenUnix(unix, options.socket);
  building.defer(() => closeServer(unix, 0));
  const tcp = options.listen === "off" ? undefined : httpServer(options.listener("tcp"));
  if (tcp) await listenTcp(tcp, options.listen);
  building.keep();
  const close = async (drainMs: number) => {
    await Promise.all([closeServer(unix, drainMs), tcp && closeServer(tcp, drainMs)]);
  };
  return { url: tcp && urlOf(tcp), close, [Symbol.asyncDispose]: () => close(0) };
}

function httpServer(listener: http.RequestListener): http.Server {
  const server = http.createServer(
    // Bodies may take their time; headers may not, or idle connections would use up the descriptors.
    {
      noDelay: true,
      requestTimeout: 0,
      headersTimeout: headersMs,
      keepAliveTimeout: keepAliveMs,
      // Nothing here depends on it, and Node's refusal has no body.
      requireHostHeader: false,
    },
    (incoming, outgoing) => {
      // A kept connection of a server that no longer listens would hold close() until it times out.
      outgoing.once("close", () => {
        if (!server.listening) setImmediate(() => server.closeIdleConnections());
      });
      listener(incoming, outgoing);
    },
  );
  server.maxConnections = maxConnections;
  answerBadHttp(server);
  return server;
}

async function listenUnix(server: http.Server, path: string): Promise<void> {
  if (Buffer.byteLength(path) > maxSocketPath) {
    throw new AppError(
      "host_not_ready",
      `Cannot listen on ${path}: a socket's path has at most ${maxSocketPath} bytes; choose a shorter runtime_dir`,
    );
  }
  await openPrivateDir(dirname(path));
  await removeStaleSocket(path);
  // bind() makes the file with the rights that the umask leaves, and listen() binds before it returns.
  const before = process.umask(0o177);
  const bound = listening(server, { path });
  process.umask(before);
  await bound;
}

async function openPrivateDir(dir: string): Promise<void> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const uid = process.getuid?.();
  if (uid !== undefined && (await stat(dir)).uid !== uid) {
    throw new AppError(
      "host_not_ready",
      `Cannot use ${dir}: it belongs to another user; choose another runtime_dir`,
    );
  }
}

async function removeStaleSocket(path: string): Promise<void> {
  const answers = await new Promise<boolean>((resolve, reject) => {
    const probe = net.connect({ path });
    probe.once("connect", () => {
      probe.destroy();
      resolve(true);
    });
    probe.once("error", (error) =>
      isErrno(error, "ENOENT", "ECONNREFUSED") ? resolve(false) : reject(error),
    );
  });
  if (answers) {
    throw new AppError(
      "data_dir_in_use",
      `Cannot listen on ${path}: another daemon does; choose another runtime_dir`,
    );
  }
  await rm(path, { force: true });
}

async function listenTcp(server: http.Server, address: string): Promise<void> {
  const colon = address.lastIndexOf(":");
  const host = address.slice(0, colon).replace(/^\[|\]$/g, "");
  try {
    await listening(server, { host, port: Number(address.slice(colon + 1)) });
  } catch (error) {
    if (!isErrno(error, "EADDRINUSE", "EACCES", "EADDRNOTAVAIL")) throw error;
    const why = error instanceof Error ? error.message : String(error);
    throw new AppError(
      "host_not_ready",
      `Cannot listen on ${address}: ${why}; choose another address for listen, or "off"`,
      { cause: error },
    );
  }
}

function listening(server: http.Server, where: net.ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(where, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

function urlOf(server: http.Server): string {
  // A server that listens on TCP has an AddressInfo.
  const { address, family, port } = server.address() as net.AddressInfo;
  return `http://${family === "IPv6" ? `[${address}]` : address}:${port}`;
}

function closeServer(server: http.Server, drainMs: number): Promise<void> {
  if (!server.listening) return Promise.resolve();
  return new Promise((resolve) => {
    const cut = setTimeout(() => server.closeAllConnections(), drainMs);
    // Also closes the connections that are idle, and removes the file of a unix socket.
    server.close(() => {
      clearTimeout(cut);
      resolve();
    });
  });
}
