/** Clients in the warm Python of a sandbox, and a server beside it. Times are those that the guest measures. */
import type { Sandbox } from "@forkd/sdk";
import { z } from "zod";
import { limits, poll } from "../deadline.ts";
import { guestPorts, rawVerbs, serverPorts } from "./protocol.ts";

// MSG_WAITALL needs a socket that blocks, so the limits of time are those of the kernel.
const prelude = `
import json, socket, struct, time
_limit = struct.pack("ll", 60, 0)
def _connect(host, port):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO): s.setsockopt(socket.SOL_SOCKET, option, _limit)
    s.connect((host, port))
    return s
def _times(n, work):
    times = []
    for i in range(n):
        begun = time.perf_counter()
        work(i)
        times.append((time.perf_counter() - begun) * 1000)
    return times
def _resolve(name):
    try: return socket.getaddrinfo(name, 80)[0][4][0]
    except socket.gaierror: return None
def _raw(host):
    with _connect(host, ${serverPorts.raw}) as s:
        s.sendall(struct.pack(">BQ", ${rawVerbs.up}, 0))
        if s.recv(1) != b"x": raise EOFError
def _http(host, name, port=${serverPorts.http}):
    with _connect(host, port) as s:
        s.sendall(b"GET / HTTP/1.1\\r\\nHost: " + name.encode() + b"\\r\\nConnection: close\\r\\n\\r\\n")
        if not s.recv(4096).startswith(b"HTTP/1.1 200"): raise EOFError
def _accepts(port):
    try: _connect("127.0.0.1", port).close()
    except OSError: return False
    return True
def _refused(host, port):
    try: _connect(host, port).recv(1)
    except OSError: return
    raise EOFError
def _take(s, count):
    view = memoryview(bytearray(min(count, 1 << 20)))
    while count > 0:
        got = s.recv_into(view, min(count, len(view)), socket.MSG_WAITALL)
        if got == 0: raise EOFError
        count -= got
def _give(s, count):
    view = memoryview(bytearray(min(count, 1 << 20)))
    while count > 0:
        s.sendall(view[:min(count, len(view))])
        count -= min(count, len(view))
def _raw_down(host, name, count):
    with _connect(host, ${serverPorts.raw}) as s:
        s.sendall(struct.pack(">BQ", ${rawVerbs.down}, count))
        _take(s, count)
def _raw_up(host, name, count):
    with _connect(host, ${serverPorts.raw}) as s:
        s.sendall(struct.pack(">BQ", ${rawVerbs.up}, count))
        _give(s, count)
        _take(s, 1)
def _http_down(host, name, count):
    with _connect(host, ${serverPorts.http}) as s:
        s.sendall(f"GET /bytes/{count} HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n".encode())
        head = b""
        while b"\\r\\n\\r\\n" not in head: head += s.recv(1)
        _take(s, count)
def _http_up(host, name, count):
    with _connect(host, ${serverPorts.http}) as s:
        s.sendall(f"POST / HTTP/1.1\\r\\nHost: {name}\\r\\nContent-Length: {count}\\r\\n\\r\\n".encode())
        _give(s, count)
        _take(s, 12)
`;

// One process for each port: threads of one would wait for each other.
const server = `
import socket, sys, threading
answer = b"HTTP/1.1 200 OK\\r\\nContent-Length: 1\\r\\n\\r\\nx"
def serve(s):
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rest = b""
    while data := s.recv(65536):
        rest += data
        while b"\\r\\n\\r\\n" in rest:
            rest = rest.split(b"\\r\\n\\r\\n", 1)[1]
            s.sendall(answer)
    s.close()
listening = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True: threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()
`;

const timesSchema = z.array(z.number().nonnegative());

export class GuestClient {
  readonly #sandbox: Sandbox;

  private constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  static async open(sandbox: Sandbox): Promise<GuestClient> {
    const client = new GuestClient(sandbox);
    await client.#run(prelude);
    return client;
  }

  /** Milliseconds of each of n calls of a Python function, whose argument is the index. */
  async times(n: number, lambda: string): Promise<number[]> {
    return timesSchema.parse(await this.#value(`_times(${n}, ${lambda})`));
  }

  /** The address at which a name is, for the guest. */
  async resolve(name: string): Promise<string> {
    return z.string().parse(await this.#value(`_resolve(${JSON.stringify(name)})`));
  }

  /** Whether a server of the guest listens. */
  async accepts(port: number): Promise<boolean> {
    return z.boolean().parse(await this.#value(`_accepts(${port})`));
  }

  async #value(expression: string): Promise<unknown> {
    return JSON.parse(await this.#run(`print(json.dumps(${expression}))`));
  }

  async #run(code: string): Promise<string> {
    const { stdout, error } = await this.#sandbox.eval(code, { timeoutMs: limits.call * 1000 });
    if (error !== null) throw new Error(`The guest failed: ${JSON.stringify(error)}`);
    return stdout;
  }
}

/** Starts HTTP servers in the guest, which stop with it. */
export async function startGuestServers(sandbox: Sandbox, client: GuestClient): Promise<void> {
  const path = "/root/bench-server.py";
  await sandbox.files.write(path, server);
  for (const [address, port] of [
    ["0.0.0.0", guestPorts.everywhere],
    ["127.0.0.1", guestPorts.loopback],
  ] as const) {
    await sandbox.commands.run(["python3", path, address, String(port)], { background: true });
    await poll(`port ${port} of the guest`, () => client.accepts(port));
  }
}
