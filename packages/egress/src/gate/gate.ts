/**
 * The client of forkd-gate, a helper that enters the network namespace of a process and makes sockets there. The sockets
 * arrive over the IPC channel as Node's own objects and stay usable when the helper exits.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import type dgram from "node:dgram";
import type net from "node:net";
import { setTimeout } from "node:timers/promises";
import { createDeferred, LineSplitter, within, withDeadline, type Deferred, type Logger } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { deadlineSignal } from "@forkd/contract/wire";
import { z } from "zod";
import type { ProcessId } from "../types.ts";

/** The helper has its own deadline of this many milliseconds, in addition to the time to connect. */
const answerMs = 15_000;
const startMs = 10_000;
const exitMs = 3000;
const inUse = { retryMs: 100, mostMs: 5000 };
/** The helper serves this many requests at a time; more wait here. */
const maxInFlight = 200;
const maxQueued = 10_000;

type Handle = net.Server | dgram.Socket | net.Socket;

const replySchema = z.object({
  id: z.union([z.number(), z.string()]),
  port: z.number().optional(),
  error: z.string().optional(),
  code: z.string().optional(),
});

type Request = {
  readonly what: string;
  readonly expected: number;
  readonly handles: Handle[];
  /** connections that were accepted before all listeners were there */
  readonly early: [net.Server, net.Socket][];
  readonly result: Deferred<Handle[]>;
};

export class Gate implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #requests = new Map<number, Request>();
  readonly #queue: (() => void)[] = [];
  #nextId = 1;
  #isClosed = false;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  /** `onExit` is called if the helper exits before it is disposed; the gate cannot be used after that. */
  static async start(program: string, log: Logger, onExit: () => void = () => undefined): Promise<Gate> {
    const child = spawn(program, [], { stdio: ["ignore", "ignore", "pipe", "ipc"], env: {} });
    const gate = new Gate(child);
    const lines = new LineSplitter({ maxLength: 4096 });
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      for (const line of lines.push(text)) log.warn({ event: "egress.gate_output", line });
      if (lines.isTooLong) lines.takeRest();
    });
    child.on("message", (message, handle) => gate.#receive(message, handle as Handle | undefined));
    child.on("error", () => gate.#close(onExit));
    child.on("exit", () => gate.#close(onExit));
    child.on("disconnect", () => gate.#close(onExit));
    using late = deadlineSignal(startMs);
    try {
      await once(child, "spawn", { signal: late.signal });
    } catch (error) {
      child.kill("SIGKILL");
      throw new AppError("host_not_ready", `Cannot start "${program}"`, { cause: error });
    }
    return gate;
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Listeners on these TCP ports that accept connections to any address. Half-open connections stay open. */
  async listen(process: ProcessId, ports: readonly number[]): Promise<net.Server[]> {
    const servers = await this.#bind("listen", process, ports.join(","), ports.length);
    return servers as net.Server[];
  }

  /** A UDP socket that is bound to any address. */
  async datagram(process: ProcessId, address: string, port: number): Promise<dgram.Socket> {
    const [socket] = await this.#bind("dns", process, `${address} ${port}`, 1);
    return socket as dgram.Socket;
  }

  async connect(process: ProcessId, address: string, port: number, timeoutMs: number): Promise<net.Socket> {
    const [socket] = await this.#ask(
      "connect",
      process,
      `${address} ${port} ${timeoutMs}`,
      1,
      answerMs + timeoutMs,
    );
    return socket as net.Socket;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { exitCode, signalCode } = this.#child;
    const exited = exitCode !== null || signalCode !== null ? undefined : once(this.#child, "exit");
    this.#close(() => undefined);
    if (this.#child.connected) this.#child.disconnect();
    if (exited && (await within(exited, exitMs)) === undefined) this.#child.kill("SIGKILL");
  }

  /**
   * Waits a moment for an address that is in use: a proxy whose daemon was killed holds it until it has exited. That is not
   * a process of this one, and there is no event for an address that becomes free, so this tries again.
   */
  async #bind(verb: string, process: ProcessId, rest: string, expected: number): Promise<Handle[]> {
    const untilMs = performance.now() + inUse.mostMs;
    for (;;) {
      try {
        return await this.#ask(verb, process, rest, expected, answerMs);
      } catch (error) {
        const isInUse = error instanceof AppError && error.details["code"] === "EADDRINUSE";
        if (!isInUse || performance.now() >= untilMs) throw error;
        await setTimeout(inUse.retryMs);
      }
    }
  }

  async #ask(
    verb: string,
    { pid, startTime }: ProcessId,
    rest: string,
    expected: number,
    timeoutMs: number,
  ): Promise<Handle[]> {
    if (this.#requests.size >= maxInFlight) await this.#turn();
    if (this.#isClosed) throw closed();
    const id = this.#nextId++;
    const what = `${verb} ${rest}`;
    const result = createDeferred<Handle[]>();
    this.#requests.set(id, { what, expected, handles: [], early: [], result });
    try {
      this.#child.send(`${verb} ${id} ${pid} ${startTime} ${rest}`, (error) => {
        if (error) this.#settle(id, new AppError("engine_failed", `Cannot ask the gate: ${error.message}`));
      });
      const late = () =>
        new AppError("deadline_exceeded", `The gate did not answer "${what}" in ${timeoutMs} ms`);
      return await withDeadline(result.promise, timeoutMs, late);
    } finally {
      // Sockets that arrive from here on are closed.
      this.#settle(id, closed());
    }
  }

  async #turn(): Promise<void> {
    if (this.#queue.length >= maxQueued)
      throw new AppError("capacity_exhausted", "Too many requests wait for the gate");
    await new Promise<void>((resolve) => this.#queue.push(resolve));
  }

  #receive(message: unknown, handle: Handle | undefined): void {
    const { data: reply } = replySchema.safeParse(message);
    const request = reply && this.#requests.get(Number(reply.id));
    if (!reply || !request) {
      if (handle) discard(handle);
      return;
    }
    if (reply.error !== undefined || !handle) {
      const details = { ...(reply.code !== undefined && { code: reply.code }) };
      const text = `Cannot ${request.what}: ${reply.error ?? "no socket"}`;
      this.#settle(Number(reply.id), new AppError("engine_failed", text, { details }));
      return;
    }
    request.handles.push(handle);
    if (isServer(handle)) {
      handle.allowHalfOpen = true;
      if (request.expected > 1) handle.on("connection", (socket) => request.early.push([handle, socket]));
    }
    if (request.handles.length === request.expected) this.#settle(Number(reply.id));
  }

  #settle(id: number, error?: AppError): void {
    const request = this.#requests.get(id);
    if (!request) return;
    this.#requests.delete(id);
    this.#queue.shift()?.();
    for (const server of request.handles.filter(isServer)) server.removeAllListeners("connection");
    if (error) {
      for (const handle of request.handles) discard(handle);
      request.result.reject(error);
      return;
    }
    request.result.resolve(request.handles);
    // The caller adds its listeners in the turn in which it gets the servers.
    setImmediate(() => {
      for (const [server, socket] of request.early) server.emit("connection", socket);
    });
  }

  #close(onExit: () => void): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const id of this.#requests.keys()) this.#settle(id, closed());
    for (const go of this.#queue.splice(0)) go();
    onExit();
  }
}

function isServer(handle: Handle): handle is net.Server & { allowHalfOpen: boolean } {
  return "listening" in handle;
}

function discard(handle: Handle): void {
  if ("destroy" in handle) handle.destroy();
  else handle.close();
}

function closed(): AppError {
  return new AppError("engine_failed", "The gate is closed");
}
