/** One connection from its first bytes on: TLS by its server name, HTTP by its hosts, anything else by what was dialled. */
import { errorMessage } from "@forkd/contract";
import { parseHost, type Host } from "../policy/host.ts";
import type { LogEntry } from "../types.ts";
import type { MachineAccess, Target } from "./access.ts";
import type { Connection, Dial } from "./connection.ts";
import type { HttpFront } from "./http-front.ts";
import { peek, type Peeked } from "./peek.ts";
import { pump, relay } from "./pump.ts";

/** Resolves when the connection has been handed over to streams or closed. Does not reject. */
export async function serveConnection(
  connection: Connection,
  dial: Dial,
  access: MachineAccess,
  http: HttpFront,
): Promise<void> {
  try {
    const { guest } = connection;
    const raw = dial.isProxy === true ? undefined : access.targetFor(dial, undefined);
    const isRawAllowed = raw !== undefined && "target" in raw;
    const peeked = await peek(guest, { maySilent: isRawAllowed });
    if (peeked.what.kind === "silent" && isRawAllowed)
      await serveSilent({ connection, dial, access, http }, raw.target);
    else await servePeeked({ connection, dial, access, http }, peeked);
  } catch {
    connection.cut();
  }
}

type Served = { connection: Connection; dial: Dial; access: MachineAccess; http: HttpFront };

async function servePeeked(served: Served, { head, what }: Peeked): Promise<void> {
  const { connection, dial, access, http } = served;
  switch (what.kind) {
    case "gone":
    case "silent":
      connection.guest.destroy();
      return;
    case "malformed":
      refuse(served, what.reason);
      return;
    case "http":
      http.serve(connection, dial, access);
      return;
    case "raw":
      await join(served, undefined, head, { via: "raw" });
      return;
    case "tls":
      await serveTls(served, head, what);
  }
}

async function serveTls(
  served: Served,
  head: Buffer,
  { serverName, hasEncryptedHello }: Peeked["what"] & { kind: "tls" },
): Promise<void> {
  const { connection, dial, access } = served;
  const host = serverName === undefined ? undefined : parseHost(serverName);
  if (serverName !== undefined && host === undefined) {
    refuse(served, "the server name of TLS is not a plain name");
    return;
  }
  const extra = { via: "tls", ...(hasEncryptedHello && { encryptedHello: true }) } as const;
  const name = host !== undefined && "name" in host ? host.name : undefined;
  if (name === undefined || !access.interceptor.handlesTls(name, dial.port, access.secrets)) {
    await join(served, host, head, extra);
    return;
  }
  const checked = access.targetFor(dial, host);
  if ("refused" in checked) {
    access.deny(checked.refused, extra);
    connection.cut();
    return;
  }
  access.log({ event: "connected", protocol: "tcp", via: "intercepted", name, port: dial.port });
  access.interceptor.tls(connection.guest, head, name, dial.port, access.contextFor(connection));
}

/** Connects to where the bytes lead and relays. */
async function join(
  served: Served,
  host: Host | undefined,
  head: Buffer,
  extra: Partial<LogEntry>,
): Promise<void> {
  const { connection, dial, access } = served;
  const checked = dial.isProxy === true ? undefined : access.targetFor(dial, host);
  if (!checked) {
    refuse(served, "the proxy serves HTTP only");
    return;
  }
  if ("refused" in checked) {
    access.deny(checked.refused, extra);
    connection.cut();
    return;
  }
  const upstream = await connectLogged(served, checked.target, extra);
  if (!upstream) return;
  const { guest } = connection;
  if (head.length > 0) upstream.write(head);
  relay(guest, upstream, (direction, bytes) => access.charge(direction, bytes));
  // Its end came with the first bytes.
  if (guest.readableEnded) upstream.end();
}

/**
 * The guest waits for the server to speak first. The connection leads to what was dialled; what the guest sends later is still
 * looked at before it goes there.
 */
async function serveSilent(served: Served, target: Target): Promise<void> {
  const { connection, access } = served;
  const { guest } = connection;
  const upstream = await connectLogged(served, target, { via: "raw" });
  if (!upstream) return;
  // An answer of an upstream proxy to CONNECT counts too.
  const readBefore = upstream.bytesRead;
  pump(upstream, guest, (bytes) => access.charge("in", bytes));
  const onClose = (): void => {
    if (!guest.writableEnded) guest.destroy();
  };
  upstream.once("close", onClose);
  const { head, what } = await peek(guest, { maySilent: false, deadlineMs: Number.POSITIVE_INFINITY });
  if (upstream.bytesRead === readBefore && (what.kind === "tls" || what.kind === "http")) {
    // Only a slow client: nothing has passed yet.
    upstream.off("close", onClose);
    upstream.destroy();
    await servePeeked(served, { head, what });
    return;
  }
  if (what.kind === "tls" && what.serverName !== undefined) {
    const host = parseHost(what.serverName);
    const checked = host && access.targetFor(served.dial, host);
    if (checked && "refused" in checked) access.deny(checked.refused, { via: "tls" });
    if (!checked || "refused" in checked) {
      connection.cut();
      return;
    }
  } else if (what.kind === "http" || what.kind === "malformed") {
    refuse(served, "the first bytes do not fit what the server sent");
    return;
  }
  if (head.length > 0) upstream.write(head);
  if (guest.readableEnded) upstream.end();
  else pump(guest, upstream, (bytes) => access.charge("out", bytes));
  guest.once("close", () => upstream.destroy());
}

async function connectLogged(
  { connection, access }: Served,
  target: Target,
  extra: Partial<LogEntry>,
): Promise<Awaited<ReturnType<MachineAccess["connect"]>> | undefined> {
  const { guest, startedMs } = connection;
  const facts = { protocol: "tcp", ...target, ...extra } as const;
  try {
    const upstream = await access.connect(connection, target);
    access.log({ event: "connected", ...facts, address: target.address ?? upstream.remoteAddress });
    guest.once("close", () => {
      const [bytesOut, bytesIn] = [guest.bytesRead, guest.bytesWritten];
      const durationMs = Math.round(performance.now() - startedMs);
      access.log({ event: "closed", ...facts, bytesIn, bytesOut, durationMs });
    });
    return upstream;
  } catch (error) {
    access.log({ event: "failed", ...facts, reason: errorMessage(error) });
    connection.cut();
    return undefined;
  }
}

function refuse({ connection, dial, access }: Served, reason: string): void {
  const { name, address, port } = dial;
  access.log({ event: "denied", protocol: "tcp", name, address, port, reason });
  connection.cut();
}
