/** Connections to the outside: to the first address that answers, or through the proxy that the host itself must use. */
import net from "node:net";
import { withDeadline, type UpstreamProxy } from "@forkd/base";
import { AppError, errorMessage } from "@forkd/contract";

const connectMs = 15_000;
/** The next address is tried if this one has not answered; the first to answer is used (RFC 8305). */
const nextAttemptMs = 250;
const maxAttempts = 8;
const maxProxyHead = 8192;

/** Connects to the first address that answers. `what` is for the message of the error. */
export function connectToAny(addresses: readonly string[], port: number, what: string): Promise<net.Socket> {
  const wanted = interleave(addresses).slice(0, maxAttempts);
  return new Promise((resolve, reject) => {
    const open = new Set<net.Socket>();
    let timer: NodeJS.Timeout | undefined;
    let last: unknown = new Error("no address");
    const finish = (socket?: net.Socket): void => {
      clearTimeout(timer);
      clearTimeout(deadline);
      for (const other of open) if (other !== socket) other.destroy();
      open.clear();
      if (socket) resolve(socket);
      else
        reject(
          new AppError("engine_failed", `Cannot connect to ${what}: ${errorMessage(last)}`, { cause: last }),
        );
    };
    const deadline = setTimeout(() => {
      last = new Error(`no answer within ${connectMs} ms`);
      finish();
    }, connectMs);
    const next = (): void => {
      clearTimeout(timer);
      const host = wanted.shift();
      if (host === undefined) {
        if (open.size === 0) finish();
        return;
      }
      // No deadline: the one above is for all attempts together.
      const socket = net.connect({ host, port, allowHalfOpen: true, noDelay: true });
      open.add(socket);
      const fail = (error: unknown): void => {
        last = error;
        open.delete(socket);
        next();
      };
      socket.once("error", fail);
      socket.once("connect", () => {
        socket.off("error", fail);
        finish(socket);
      });
      timer = setTimeout(next, nextAttemptMs);
    };
    next();
  });
}

/** IPv6 and IPv4 in turns, beginning with the family that the resolver put first. */
function interleave(addresses: readonly string[]): string[] {
  const [six, four] = [
    addresses.filter((each) => each.includes(":")),
    addresses.filter((each) => !each.includes(":")),
  ];
  const [first, second] = addresses[0]?.includes(":") === true ? [six, four] : [four, six];
  return Array.from({ length: addresses.length }, (_, index) => [first[index], second[index]])
    .flat()
    .filter((address) => address !== undefined);
}

/** A connection to the proxy itself. */
export function connectToProxy({ host, port }: UpstreamProxy): Promise<net.Socket> {
  return connectToAny([host], port, "the proxy of the host");
}

/** A tunnel through the proxy. */
export async function connectThrough(proxy: UpstreamProxy, host: string, port: number): Promise<net.Socket> {
  const socket = await connectToProxy(proxy);
  const authority = `${host.includes(":") ? `[${host}]` : host}:${port}`;
  try {
    const late = () =>
      new AppError("engine_failed", `The proxy of the host did not answer within ${connectMs} ms`);
    const lines = [`CONNECT ${authority} HTTP/1.1`, `Host: ${authority}`];
    if (proxy.authorization !== undefined) lines.push(`Proxy-Authorization: ${proxy.authorization}`);
    socket.write(`${lines.join("\r\n")}\r\n\r\n`);
    await withDeadline(readTunnelAnswer(socket, authority), connectMs, late);
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

function readTunnelAnswer(socket: net.Socket, authority: string): Promise<void> {
  return new Promise((resolve, reject) => {
    let head: Buffer = Buffer.alloc(0);
    const finish = (problem?: string): void => {
      socket.off("readable", onReadable).off("end", onEnd).off("error", onEnd).off("close", onEnd);
      if (problem === undefined) resolve();
      else reject(new AppError("engine_failed", `The proxy of the host refused ${authority}: ${problem}`));
    };
    const onEnd = (): void => finish("it closed the connection");
    const onReadable = (): void => {
      const chunk = socket.read() as Buffer | null;
      if (!chunk) return;
      head = Buffer.concat([head, chunk]);
      const end = head.indexOf("\r\n\r\n");
      if (end < 0) {
        if (head.length > maxProxyHead) finish("its answer is too long");
        return;
      }
      const status = /^HTTP\/1\.[01] (\d{3})/.exec(head.toString("latin1", 0, 32))?.[1] ?? "no status";
      if (!status.startsWith("2")) {
        finish(`status ${status}`);
        return;
      }
      if (head.length > end + 4) socket.unshift(head.subarray(end + 4));
      finish();
    };
    socket.on("readable", onReadable).on("end", onEnd).on("error", onEnd).on("close", onEnd);
  });
}
