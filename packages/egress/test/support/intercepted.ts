/** A guest's side, an interceptor and a real TLS server, all on loopback. */
import { once } from "node:events";
import http from "node:http";
import https from "node:https";
import net, { type AddressInfo } from "node:net";
import { join } from "node:path";
import type { TestContext } from "node:test";
import tls from "node:tls";
import { temporaryDirectory } from "@forkd/test-support";
import type { InterceptContext } from "../../src/proxy/intercept.ts";
import { InstallationCa } from "../../src/tls/ca.ts";
import { TlsInterceptor } from "../../src/tls/interceptor.ts";
import type { LogEntry, MachineSecret } from "../../src/types.ts";

export const host = "api.example.com";
export const value = "sk-live-0123456789abcdef";
export const placeholder = `forkd-secret-${"0123456789abcdef".repeat(2)}`;
export const otherPlaceholder = `forkd-secret-${"fedcba9876543210".repeat(2)}`;

export const secret: MachineSecret = {
  name: "OPENAI",
  placeholder,
  value,
  hosts: [host],
  header: "authorization",
  format: "Bearer {}",
};
export const otherSecret: MachineSecret = {
  ...secret,
  name: "OTHER",
  placeholder: otherPlaceholder,
  value: "other-value-987654321",
  hosts: ["other.example.com"],
};

export type Intercepted = {
  readonly interceptor: TlsInterceptor;
  /** where a guest's connections arrive */
  readonly port: number;
  /** the CA that the guest trusts */
  readonly ca: string;
  readonly directory: string;
  readonly log: Omit<LogEntry, "time">[];
  readonly bytes: { in: number; out: number };
  /** connections to the host outside, in all */
  readonly connections: net.Socket[];
  readonly context: InterceptContext;
  /** replaces the machine's secrets */
  secrets: readonly MachineSecret[];
  charge: InterceptContext["charge"];
};

export type Setup = {
  readonly handler: http.RequestListener;
  readonly server?: https.ServerOptions;
  readonly onUpgrade?: (req: http.IncomingMessage, socket: net.Socket, head: Buffer) => void;
  readonly onServer?: (server: https.Server) => void;
  readonly secrets?: readonly MachineSecret[];
  /** the name in the certificate of the host outside */
  readonly certificateName?: string;
  readonly roots?: "none";
  readonly connect?: InterceptContext["connect"];
  readonly headersMs?: number;
};

export async function intercepted(t: TestContext, setup: Setup): Promise<Intercepted> {
  const directory = await temporaryDirectory(t);
  const outside = await InstallationCa.open(join(directory, "outside"));
  const inside = await InstallationCa.open(join(directory, "inside"));
  const server = https.createServer(
    { ...outside.leaf(setup.certificateName ?? host), ...setup.server },
    setup.handler,
  );
  if (setup.onUpgrade) server.on("upgrade", setup.onUpgrade);
  setup.onServer?.(server);
  const upstreamPort = await listen(t, server);
  const roots = setup.roots === "none" ? [] : [outside.certificatePem()];
  const interceptor = new TlsInterceptor({ ca: inside, roots, headersMs: setup.headersMs });
  t.after(() => interceptor[Symbol.dispose]());
  const connections: net.Socket[] = [];
  const log: Omit<LogEntry, "time">[] = [];
  const bytes = { in: 0, out: 0 };
  const context: InterceptContext = {
    machine: "m1",
    get secrets() {
      return self.secrets;
    },
    decide: () => ({ allowed: true, by: "name" }),
    connect:
      setup.connect ??
      (async () => {
        const socket = net.connect(upstreamPort, "127.0.0.1");
        connections.push(socket);
        await once(socket, "connect");
        return socket;
      }),
    charge: (direction, count) => self.charge(direction, count),
    log: (entry) => log.push(entry),
  };
  const front = net.createServer({ pauseOnConnect: false }, (socket) => {
    socket.once("readable", () => {
      const head = socket.read() as Buffer | null;
      if (head === null) return void socket.destroy();
      interceptor.tls(socket, head, host, 443, context);
    });
    socket.on("error", () => undefined);
  });
  const self: Intercepted = {
    interceptor,
    port: await listen(t, front),
    ca: inside.certificatePem(),
    directory,
    log,
    bytes,
    connections,
    context,
    secrets: setup.secrets ?? [secret, otherSecret],
    charge: (direction, count) => {
      bytes[direction] += count;
      return undefined;
    },
  };
  return self;
}

/** On a free port; closed with all its connections after the test. */
export async function listen(t: TestContext, server: net.Server): Promise<number> {
  const open = new Set<net.Socket>();
  server.on("connection", (socket: net.Socket) => {
    open.add(socket);
    socket.once("close", () => open.delete(socket));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    for (const socket of open) socket.destroy();
  });
  return (server.address() as AddressInfo).port;
}

/** A guest's TLS connection to the host. */
export async function guestSocket(
  proxy: Intercepted,
  options: tls.ConnectionOptions = {},
): Promise<tls.TLSSocket> {
  const socket = tls.connect({
    host: "127.0.0.1",
    port: proxy.port,
    servername: host,
    ca: proxy.ca,
    ...options,
  });
  await once(socket, "secureConnect");
  return socket;
}

export type Reply = {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly rawHeaders: string[];
  readonly trailers: NodeJS.Dict<string>;
  readonly text: string;
};

/** One request of a guest over HTTP/1.1. */
export function request(
  proxy: Intercepted,
  path: string,
  {
    body,
    headers,
    ...options
  }: Omit<https.RequestOptions, "headers"> & {
    body?: string | Buffer;
    headers?: http.OutgoingHttpHeaders;
  } = {},
): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const req = https.request({
      host: "127.0.0.1",
      port: proxy.port,
      servername: host,
      ca: proxy.ca,
      path,
      agent: false,
      ...options,
      headers: { host, ...headers },
    });
    req.once("error", reject);
    req.once("response", (res) => {
      const chunks: Buffer[] = [];
      res.on("data", (chunk: Buffer) => chunks.push(chunk));
      res.once("error", reject);
      res.once("end", () =>
        resolve({
          status: res.statusCode ?? 0,
          headers: res.headers,
          rawHeaders: res.rawHeaders,
          trailers: res.trailers,
          text: Buffer.concat(chunks).toString("utf8"),
        }),
      );
    });
    req.end(body);
  });
}
