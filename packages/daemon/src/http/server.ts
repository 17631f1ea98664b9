/**
 * Listening: a unix socket for the owner, and TCP, with TLS if there is a certificate. Closing and draining.
 */
import http from "node:http";
import https from "node:https";
import type net from "node:net";
import { isErrno, Scope, type Logger } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { Via } from "../access/gate.ts";
import { isLoopback, parseListen, type ListenAddress } from "../settings/exposure.ts";
import { limitStrangers } from "../access/strangers.ts";
import { networkOf, plainAddress } from "../access/peer.ts";
import type { Tls } from "../access/tls.ts";
import { answerBadHttp } from "./bad-http.ts";
import { listening, listenUnix } from "./unix-listener.ts";
import { takeUpgrades, type UpgradeListener } from "./upgrade.ts";

export type ServerOptions = {
  readonly socket: string;
  /** "HOST:PORT" or "off" */
  readonly listen: string;
  readonly listener: (via: Via) => http.RequestListener;
  /** default: the header Upgrade is ignored */
  readonly onUpgrade?: ((via: Via) => UpgradeListener) | undefined;
  /** called before a request whose client waits for "100 Continue"; true: the listener says it */
  readonly onExpect?: ((incoming: http.IncomingMessage) => boolean) | undefined;
  /** of TCP */
  readonly tls?: Tls | undefined;
  readonly limits?: Limits | undefined;
  readonly log?: Logger | undefined;
  /** how often it looks whether the file of the socket is there */
  readonly lookMs?: number | undefined;
};
/** What clients on TCP may use. */
export type Limits = {
  readonly maxConnections?: number;
  /** of one remote address (IPv6: of its /64 network); 0 or absent: no limit */
  readonly maxPerAddress?: number;
  /** addresses that have no limit; default: loopback, where a proxy or a local user is */
  readonly isOwnAddress?: (address: string) => boolean;
  /** how long the head of a request may take */
  readonly headersMs?: number;
};

export interface Server extends AsyncDisposable {
  /** undefined if TCP is off */
  readonly url: string | undefined;
  /**
   * Accepts no new requests and waits for the running ones, at most `drainMs`; then calls `beforeCut` and
   * closes their connections.
   */
  close(drainMs: number, beforeCut?: () => void): Promise<void>;
}

const keepAliveMs = 65_000;
const headersMs = 20_000;
const maxHeaderBytes = 16 * 1024;
const defaultConnections = 4096;

export async function openServer(options: ServerOptions): Promise<Server> {
  await using building = new Scope();
  const { onExpect } = options;
  const unix = httpServer(options.listener("unix"), {
    isTcp: false,
    onUpgrade: options.onUpgrade?.("unix"),
    onExpect,
  });
  const { socket: path, log, lookMs: everyMs } = options;
  const file = await listenUnix(unix, { path, log, everyMs });
  const closeUnix = async (drainMs: number, beforeCut?: () => void) => {
    await Promise.all([file.close(), closeServer(unix, drainMs, beforeCut)]);
  };
  building.defer(() => closeUnix(0));
  const address = parseListen(options.listen);
  const onUpgrade = options.onUpgrade?.("tcp");
  const kind = { ...options.limits, isTcp: true, tls: options.tls, onUpgrade, onExpect };
  const tcp = address && httpServer(options.listener("tcp"), kind);
  if (tcp) await listenTcp(tcp, address);
  building.keep();
  const close = async (drainMs: number, beforeCut = () => {}) => {
    await Promise.all([closeUnix(drainMs, beforeCut), tcp && closeServer(tcp, drainMs, beforeCut)]);
  };
  return { url: tcp && urlOf(tcp), close, [Symbol.asyncDispose]: () => close(0) };
}

type Kind = Limits &
  Pick<ServerOptions, "onExpect"> & {
    readonly isTcp: boolean;
    readonly tls?: Tls | undefined;
    readonly onUpgrade?: UpgradeListener | undefined;
  };

/** Limits the time for headers, not for bodies: silent connections must not use up the descriptors. */
function httpServer(
  listener: http.RequestListener,
  { isTcp, tls, onUpgrade, onExpect, ...limits }: Kind,
): http.Server {
  const headersTimeout = limits.headersMs ?? headersMs;
  const options: http.ServerOptions = {
    noDelay: true,
    // Detects peers that vanished; a silent stream to one would never end.
    keepAlive: true,
    keepAliveInitialDelay: keepAliveMs,
    requestTimeout: 0,
    headersTimeout,
    connectionsCheckingInterval: Math.min(5000, headersTimeout),
    keepAliveTimeout: keepAliveMs,
    maxHeaderSize: maxHeaderBytes,
    // The gate checks it, and Node's refusal has no body.
    requireHostHeader: false,
  };
  const onRequest: http.RequestListener = (incoming, outgoing) => {
    // An idle connection would keep close() waiting until it times out.
    outgoing.once("close", () => {
      if (!server.listening) setImmediate(() => server.closeIdleConnections());
    });
    listener(incoming, outgoing);
  };
  const server = tls
    ? secureServer({ ...options, handshakeTimeout: headersTimeout }, onRequest, tls)
    : http.createServer(options, onRequest);
  server.maxConnections = limits.maxConnections ?? defaultConnections;
  const exempt = isTcp ? limitStrangers(server, server.maxConnections) : undefined;
  if (limits.maxPerAddress) limitPerAddress(server, limits.maxPerAddress, limits.isOwnAddress ?? isLoopback);
  answerBadHttp(server);
  keepTrack(server);
  if (onUpgrade) {
    takeUpgrades(server, (incoming, socket, head) => {
      const isTaken = onUpgrade(incoming, socket, head);
      if (isTaken) exempt?.(incoming.socket);
      return isTaken;
    });
  }
  if (onExpect) {
    server.on("checkContinue", (incoming, outgoing) => {
      if (!onExpect(incoming)) outgoing.writeContinue();
      server.emit("request", incoming, outgoing);
    });
  }
  return server;
}

/**
 * Closes a connection over the limit without an answer, as Node does over maxConnections: an answer would
 * cost what the limit saves.
 */
function limitPerAddress(server: http.Server, max: number, isOwnAddress: (address: string) => boolean): void {
  const counts = new Map<string, number>();
  server.prependListener("connection", (socket: net.Socket) => {
    const address = plainAddress(socket.remoteAddress);
    if (isOwnAddress(address)) return;
    const network = networkOf(address);
    const count = counts.get(network) ?? 0;
    if (count >= max) return void socket.destroy();
    counts.set(network, count + 1);
    socket.once("close", () => {
      const left = (counts.get(network) ?? 1) - 1;
      if (left > 0) counts.set(network, left);
      else counts.delete(network);
    });
  });
}

const socketsOf = new WeakMap<net.Server, Set<net.Socket>>();

/** Node's server tracks connections that speak HTTP; one in its TLS handshake keeps close() waiting too. */
function keepTrack(server: http.Server): void {
  const sockets = new Set<net.Socket>();
  socketsOf.set(server, sockets);
  server.on("connection", (socket: net.Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
}

function secureServer(options: https.ServerOptions, onRequest: http.RequestListener, tls: Tls): http.Server {
  // As without TLS: a tunnel may end one direction before the other.
  const server = https.createServer({ ...options, ...tls.options, allowHalfOpen: true }, onRequest);
  tls.attach(server);
  return server;
}

async function listenTcp(server: http.Server, { host, port }: ListenAddress): Promise<void> {
  try {
    await listening(server, { host, port });
  } catch (error) {
    if (!isErrno(error, "EADDRINUSE", "EACCES", "EADDRNOTAVAIL")) throw error;
    const why = isErrno(error, "EADDRINUSE")
      ? "the port is in use"
      : isErrno(error, "EACCES")
        ? "this user may not use the port"
        : "this host does not have the address";
    throw new AppError("host_not_ready", `Cannot listen on ${host} port ${port}: ${why}`, {
      remedy: { action: "change_setting", setting: "listen", to: 'another address, or to "off"' },
      cause: error,
    });
  }
  // The host may resolve "localhost" to another address.
  const bound = (server.address() as net.AddressInfo).address;
  if (isLoopback(host) && !isLoopback(bound)) {
    await closeServer(server, 0);
    throw new AppError("host_not_ready", `Cannot listen on ${host}: it is ${bound} on this host`, {
      remedy: { action: "change_setting", setting: "listen", to: `127.0.0.1:${port}` },
    });
  }
}

/** For clients on this machine: a wildcard address becomes the loopback address. */
function urlOf(server: http.Server): string {
  // A server that listens on TCP has an AddressInfo.
  const { address, family, port } = server.address() as net.AddressInfo;
  const host = { "0.0.0.0": "127.0.0.1", "::": "::1" }[address] ?? address;
  const scheme = server instanceof https.Server ? "https" : "http";
  return `${scheme}://${family === "IPv6" ? `[${host}]` : host}:${port}`;
}

function closeServer(server: http.Server, drainMs: number, beforeCut = () => {}): Promise<void> {
  if (!server.listening) return Promise.resolve();
  return new Promise((resolve) => {
    const cut = setTimeout(() => {
      beforeCut();
      server.closeAllConnections();
      for (const socket of socketsOf.get(server) ?? []) socket.destroy();
    }, drainMs);
    // Also closes the connections that are idle, and removes the file of a unix socket.
    server.close(() => {
      clearTimeout(cut);
      resolve();
    });
  });
}
