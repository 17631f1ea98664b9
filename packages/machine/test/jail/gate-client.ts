/** For tests: the gate, spoken to over Node's own channel. */
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { Socket as DatagramSocket } from "node:dgram";
import { Server, Socket } from "node:net";
import type { TestContext } from "node:test";
import type { ProcessId } from "../../src/host/procfs.ts";
import { within } from "./support.ts";

export type Failure = { id: number | string; error: string; errno: number; code: string };
export type Reply = { message: { id: number | string; port?: number } | Failure; handle: unknown };

export class GateClient {
  readonly child: ChildProcess;
  #next = 1;
  readonly #replies = new Map<string, (reply: Reply) => void>();
  readonly #open: (() => void)[] = [];

  constructor(t: TestContext, program: string, uid?: number) {
    this.child = spawn(program, [], {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
      cwd: "/",
      ...(uid !== undefined && uid !== process.getuid?.() && { uid, gid: uid }),
    });
    this.child.on("message", (message: Reply["message"], handle: unknown) => {
      this.#keep(handle);
      this.#replies.get(String(message.id))?.({ message, handle });
    });
    t.after(() => this.close());
  }

  /** Sends a request and collects `count` replies. `rest` follows the process. */
  async request(kind: string, process: ProcessId, rest: string, count = 1): Promise<Reply[]> {
    const id = String(this.#next++);
    const replies: Reply[] = [];
    const all = new Promise<Reply[]>((resolve) => {
      this.#replies.set(id, (reply) => {
        replies.push(reply);
        if (replies.length === count || "error" in reply.message) resolve(replies);
      });
    });
    this.send(`${kind} ${id} ${process.pid} ${process.startTime} ${rest}`);
    return within(all);
  }

  /** Everything that came through the gate is closed with it; guests do not close their connections. */
  #keep(handle: unknown): void {
    if (handle instanceof Socket) this.#open.push(() => handle.destroy());
    if (handle instanceof DatagramSocket) this.#open.push(() => handle.close());
    if (handle instanceof Server) {
      this.#open.push(() => handle.close());
      handle.on("connection", (socket) => {
        socket.on("error", () => undefined);
        this.#open.push(() => socket.destroy());
      });
    }
  }

  send(text: string): void {
    this.child.send(text);
  }

  async #one(kind: string, process: ProcessId, rest: string): Promise<unknown> {
    const [reply] = await this.request(kind, process, rest);
    assert.ok(reply && !("error" in reply.message), JSON.stringify(reply?.message));
    return reply.handle;
  }

  async listen(process: ProcessId, port: number): Promise<Server> {
    return (await this.#one("listen", process, String(port))) as Server;
  }

  async datagram(process: ProcessId, address: string, port: number): Promise<DatagramSocket> {
    return (await this.#one("dns", process, `${address} ${port}`)) as DatagramSocket;
  }

  async connect(process: ProcessId, address: string, port: number): Promise<Socket> {
    return (await this.#one("connect", process, `${address} ${port} 5000`)) as Socket;
  }

  /** The error of a request that must fail. */
  async failure(kind: string, process: ProcessId, rest: string): Promise<Failure> {
    const [reply] = await this.request(kind, process, rest);
    assert.ok(reply && "error" in reply.message, "the request fails");
    return reply.message;
  }

  async close(): Promise<void> {
    for (const close of this.#open.splice(0)) close();
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const exit = once(this.child, "exit");
    this.child.disconnect();
    await within(exit);
  }
}

/** Answers each connection with the address that it was dialled at, and its text with the same text. */
export function answerWithAddress(server: Server): void {
  server.on("connection", (socket) => {
    socket.once("data", (data) => {
      socket.end(`${socket.localAddress}:${socket.localPort} ${data.toString()}`);
    });
  });
}

/** The first text on a connection after it has sent `question`. */
export async function ask(socket: Socket, question: string): Promise<string> {
  const answer = once(socket, "data");
  socket.write(question);
  const [data] = (await within(answer)) as [Buffer];
  socket.destroy();
  return data.toString();
}
