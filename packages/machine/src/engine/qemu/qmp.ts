/**
 * QMP client: one JSON object per line over a socket.
 *
 * Several commands may be pending; answers are matched by id. Events go to waiters by name.
 *
 * Every command has a deadline. After a missed one the connection is unusable: a late answer could belong to a
 * state that the caller has given up. Everything pending rejects, and the owner ends the process.
 */
import type { Socket } from "node:net";
import { z } from "zod";
import { LineSplitter, withDeadline } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { vmmDeadlines, type VmmDeadlines } from "../../deadlines.ts";

const messageSchema = z.looseObject({
  QMP: z.unknown().optional(),
  id: z.number().optional(),
  return: z.unknown().optional(),
  error: z.object({ class: z.string(), desc: z.string() }).optional(),
  event: z.string().optional(),
  data: z.record(z.string(), z.unknown()).optional(),
});

type Pending = { command: string; resolve: (value: unknown) => void; reject: (error: Error) => void };
type Waiter = {
  events: readonly string[];
  matches: (data: Record<string, unknown>) => boolean;
  resolve: (data: Record<string, unknown>) => void;
  reject: (error: Error) => void;
};

/** The description of a long chain of disk layers takes several hundred KiB. */
const maxLine = 4 << 20;

export class QmpClient {
  #socket: Socket;
  readonly #lines = new LineSplitter({ maxLength: maxLine });
  #nextId = 1;
  #pending = new Map<number, Pending>();
  #waiters = new Set<Waiter>();
  #greeted: Promise<void>;
  #ended: Error | undefined;
  readonly deadlines: VmmDeadlines;
  #onLate: (text: string) => void = () => undefined;

  constructor(socket: Socket, deadlines: VmmDeadlines = vmmDeadlines) {
    this.#socket = socket;
    this.deadlines = deadlines;
    socket.setEncoding("utf8");
    this.#greeted = new Promise((resolve, reject) => {
      this.#waiters.add({ events: ["QMP"], matches: () => true, resolve: () => resolve(), reject });
    });
    // open() reports the failure, but may not have been called yet when the process exits early.
    this.#greeted.catch(() => undefined);
    socket.on("data", (chunk: string) => this.#read(chunk));
    socket.on("close", () => this.#end(new AppError("engine_failed", "QEMU closed its control socket")));
    socket.on("error", (cause) =>
      this.#end(new AppError("engine_failed", "QEMU closed its control socket", { cause })),
    );
  }

  /** Calls it with the reason when QEMU has missed a deadline. */
  onLate(listener: (text: string) => void): void {
    this.#onLate = listener;
  }

  /** Resolves at the greeting: by then every chardev of the command line exists. */
  async open(): Promise<void> {
    await this.#within(this.#greeted, this.deadlines.greetingMs, "did not start");
    await this.execute("qmp_capabilities");
  }

  execute(command: string, args?: Record<string, unknown>): Promise<unknown> {
    if (this.#ended) return Promise.reject(this.#ended);
    const id = this.#nextId++;
    const answer = new Promise((resolve, reject) => {
      this.#pending.set(id, { command, resolve, reject });
      this.#socket.write(`${JSON.stringify({ execute: command, ...(args && { arguments: args }), id })}\n`);
    });
    return this.#within(answer, this.deadlines.commandMs, `did not answer "${command}"`);
  }

  /** Resolves with the data of the next matching event with one of these names. */
  event(
    name: string | readonly string[],
    matches: (data: Record<string, unknown>) => boolean = () => true,
    ms = this.deadlines.loadMs,
  ): Promise<Record<string, unknown>> {
    return this.#within(this.eventEver(name, matches), ms, `did not send ${[name].flat().join(" or ")}`);
  }

  /** As event(), for events that may never occur: waits as long as the connection is open. */
  eventEver(
    name: string | readonly string[],
    matches: (data: Record<string, unknown>) => boolean = () => true,
  ): Promise<Record<string, unknown>> {
    if (this.#ended) return Promise.reject(this.#ended);
    return new Promise((resolve, reject) => {
      this.#waiters.add({ events: typeof name === "string" ? [name] : name, matches, resolve, reject });
    });
  }

  #within<T>(work: Promise<T>, ms: number, failure: string): Promise<T> {
    return withDeadline(work, ms, () => {
      const text = `the VMM ${failure} within ${ms / 1000} s`;
      const error = new AppError("engine_failed", `QEMU failed: ${text}`, { details: { reason: text } });
      this.#end(error);
      this.#onLate(text);
      return error;
    });
  }

  #read(chunk: string): void {
    for (const line of this.#lines.push(chunk)) {
      if (line.trim() === "") continue;
      try {
        this.#dispatch(messageSchema.parse(JSON.parse(line)));
      } catch (error) {
        this.#end(
          new AppError("engine_failed", "Cannot understand QEMU's control message", { cause: error }),
        );
        this.#socket.destroy();
        return;
      }
    }
    if (this.#lines.isTooLong) this.#socket.destroy();
  }

  #dispatch(message: z.output<typeof messageSchema>): void {
    if (message.QMP !== undefined) return this.#notify("QMP", {});
    if (message.event !== undefined) return this.#notify(message.event, message.data ?? {});
    const pending = message.id === undefined ? undefined : this.#pending.get(message.id);
    if (!pending || message.id === undefined) return;
    this.#pending.delete(message.id);
    if (message.error) {
      pending.reject(
        new AppError("engine_failed", `Cannot ${pending.command}: ${message.error.desc}`, {
          details: { qmp_class: message.error.class },
        }),
      );
    } else pending.resolve(message.return);
  }

  #notify(name: string, data: Record<string, unknown>): void {
    for (const waiter of this.#waiters) {
      if (!waiter.events.includes(name) || !waiter.matches(data)) continue;
      this.#waiters.delete(waiter);
      waiter.resolve(data);
    }
  }

  #end(error: Error): void {
    if (this.#ended) return;
    this.#ended = error;
    for (const pending of this.#pending.values()) pending.reject(error);
    for (const waiter of this.#waiters) waiter.reject(error);
    this.#pending.clear();
    this.#waiters.clear();
  }
}
