/** A server whose ports lead to servers of the test in place of guests. */
import { once } from "node:events";
import http from "node:http";
import net from "node:net";
import { Duplex } from "node:stream";
import type { TestContext } from "node:test";
import { nullLogger } from "@forkd/base";
import { AppError, type SandboxInfo } from "@forkd/contract";
import { parsePortsDomain } from "../../src/access/port-name.ts";
import type { Observed } from "../../src/http/exchange.ts";
import { PortServer, type PortBackend } from "../../src/ports/port-server.ts";
import { sandboxId, startServer, token, type TestOptions, type TestServer } from "../support.ts";

export const portToken = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG";
export const hostOf = (port: number, id = sandboxId, domain = "localhost") => `${port}-${id}.${domain}`;
export const withToken = { authorization: `Bearer ${token}` };

export type Guest = {
  port: number;
  /** connections that were made to it */
  connections: () => number;
};

export type PortsTest = TestServer & {
  ports: PortServer;
  /** ports that are open, and whether they are public */
  open: Map<number, { public: boolean; token: string }>;
  cut: (port: number) => void;
  traffic: { bytes: number; active: number; entered: number };
  /** another machine from now on */
  replaceMachine: () => void;
  observed: Observed[];
};

export async function startPorts(
  t: TestContext,
  options: TestOptions & { domains?: string[] } = {},
): Promise<PortsTest> {
  const open: PortsTest["open"] = new Map();
  const cuts = new Map<number, Set<() => void>>();
  const traffic = { bytes: 0, active: 0, entered: 0 };
  const observed: Observed[] = [];
  let machine = {};
  const backend: PortBackend = {
    find: ({ id, port }) => {
      if (id !== sandboxId) throw new AppError("sandbox_not_found", "none", { details: { id } });
      const found = open.get(port);
      if (!found) throw new AppError("port_not_open", `Port ${port} is not open`);
      return found;
    },
    enter: async ({ id, port }) => {
      if (id !== sandboxId) throw new AppError("sandbox_not_found", "none", { details: { id } });
      traffic.active++;
      traffic.entered++;
      let ended = false;
      const end = () => {
        if (!ended) traffic.active--;
        ended = true;
      };
      return {
        machine,
        connect: () => connectTo(port),
        explain: async (error) => error,
        byTraffic: () => {
          end();
          return { touch: () => void traffic.bytes++, [Symbol.dispose]: () => undefined };
        },
        [Symbol.dispose]: end,
      };
    },
    hold: ({ port }, cut) => {
      const all = cuts.get(port) ?? new Set();
      cuts.set(port, all.add(cut));
      return () => void all.delete(cut);
    },
  };
  const domains = (options.domains ?? ["localhost"]).flatMap((text) => parsePortsDomain(text) ?? []);
  let ports: PortServer | undefined;
  const getSandbox = () => ({ id: sandboxId }) as SandboxInfo;
  const server = await startServer({ listSandboxes: () => [], getSandbox }, options.log ?? nullLogger(), {
    ...options,
    ports: (gate) => (ports = new PortServer({ backend, domains, gate })),
    observe: (request) => void observed.push(request),
  });
  t.after(() => server[Symbol.asyncDispose]());
  if (!ports) throw new Error("not made");
  ports.url = server.url;
  return Object.assign(server, {
    ports,
    open,
    traffic,
    observed,
    cut: (port: number) => {
      for (const cut of cuts.get(port) ?? []) cut();
    },
    replaceMachine: () => void (machine = {}),
  });
}

async function connectTo(port: number): Promise<Duplex> {
  const socket = net.connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  try {
    await once(socket, "connect");
  } catch (error) {
    throw new AppError("port_refused", `Cannot connect to port ${port}`, { cause: error });
  }
  socket.on("error", () => undefined);
  // As a connection by way of the agent: a stream without the methods of a socket.
  const guest = Duplex.from({ readable: socket, writable: socket });
  guest.on("error", () => undefined);
  guest.once("close", () => socket.destroy());
  return guest;
}

export async function httpGuest(
  t: TestContext,
  listener: http.RequestListener,
  setup: (server: http.Server) => void = () => undefined,
): Promise<Guest> {
  const server = http.createServer({ keepAliveTimeout: 60_000 }, listener);
  setup(server);
  return listen(t, server);
}

/** A server that says what it wants, whatever it is asked. */
export async function rawGuest(t: TestContext, onConnection: (socket: net.Socket) => void): Promise<Guest> {
  return listen(
    t,
    net.createServer({ allowHalfOpen: true }, (socket) => {
      socket.on("error", () => undefined);
      onConnection(socket);
    }),
  );
}

async function listen(t: TestContext, server: net.Server): Promise<Guest> {
  let count = 0;
  const sockets = new Set<net.Socket>();
  server.on("connection", (socket: net.Socket) => {
    count++;
    sockets.add(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, "close");
  });
  return { port: (server.address() as net.AddressInfo).port, connections: () => count };
}

/** Sends bytes as they are and returns everything that comes back until the other side ends. */
export async function sendRaw(where: string, text: string): Promise<string> {
  const socket = where.startsWith("http://")
    ? net.connect(Number(new URL(where).port), "127.0.0.1")
    : net.connect(where);
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  socket.write(text);
  await Promise.race([once(socket, "end"), once(socket, "close")]);
  socket.destroy();
  return Buffer.concat(chunks).toString("latin1");
}

/** Opens a connection with an upgrade; `status` is not 101 if that was refused. */
export async function upgradeTo(
  where: string,
  { path, headers }: { path: string; headers: Record<string, string> },
): Promise<{
  status: number;
  headers: http.IncomingHttpHeaders;
  socket: net.Socket;
  head: Buffer;
  text: string;
}> {
  const place = where.startsWith("http://")
    ? { port: new URL(where).port, host: "127.0.0.1" }
    : { socketPath: where };
  const createConnection = () =>
    "port" in place
      ? net.connect({ port: Number(place.port), host: place.host, allowHalfOpen: true })
      : net.connect({ path: place.socketPath, allowHalfOpen: true });
  const request = http.request({
    ...place,
    path,
    createConnection,
    headers: { connection: "Upgrade", ...headers },
  });
  request.end();
  return new Promise((resolve, reject) => {
    request.once("error", reject);
    request.once("upgrade", (response, socket: net.Socket, head) =>
      resolve({ status: 101, headers: response.headers, socket, head, text: "" }),
    );
    request.once("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.once("end", () => {
        const text = Buffer.concat(chunks).toString();
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          socket: response.socket,
          head: Buffer.alloc(0),
          text,
        });
      });
    });
  });
}
