/** One run of the proxy process: requests and answers by number, and what it reports in between. */
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import {
  asOrdinary,
  createDeferred,
  LineSplitter,
  within,
  withDeadline,
  type Deferred,
  type Logger,
} from "@forkd/base";
import { AppError, errorMessage, fromErrorBody } from "@forkd/contract";
import { fromProxySchema, type FromProxy, type ProxyConfiguration, type ToProxy } from "../proxy/messages.ts";

const readyMs = 20_000;
const answerMs = 30_000;
const exitMs = 5000;
const maxPending = 10_000;
/** Look-ups of names use threads of Node's pool, each for as long as the host's resolver takes; dns/resolver.ts bounds them. */
const threads = 16;

export type Answer = FromProxy & { type: "done" };
type Report = Exclude<FromProxy, { type: "ready" | "done" | "failed" }>;
type Numbered<T> = T extends { seq: number } ? Omit<T, "seq"> : never;
export type Request = Numbered<ToProxy>;

/** The process exited before it answered. */
export class ProxyExited extends AppError {
  constructor() {
    super("engine_failed", "The egress proxy exited");
  }
}

type ProxyProcessOptions = {
  readonly configuration: ProxyConfiguration;
  readonly log: Logger;
  readonly onReport: (report: Report) => void;
  /** of a process that was ready */
  readonly onExit: () => void;
};

export class ProxyProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #log: Logger;
  readonly #pending = new Map<number, Deferred<Answer>>();
  readonly #ready = createDeferred();
  readonly #onReport: (report: Report) => void;
  #nextSeq = 0;
  #isReady = false;
  #hasExited = false;

  private constructor(child: ChildProcess, { log, onReport }: ProxyProcessOptions) {
    this.#child = child;
    this.#log = log;
    this.#onReport = onReport;
  }

  /** Resolves when the process is configured. Throws AppError. */
  static async start(options: ProxyProcessOptions): Promise<ProxyProcess> {
    const { SSL_CERT_FILE, NODE_EXTRA_CA_CERTS, TZ } = process.env;
    const chosen = Object.entries({ SSL_CERT_FILE, NODE_EXTRA_CA_CERTS, TZ });
    const child = fork(fileURLToPath(new URL("../proxy/main.js", import.meta.url)), [], {
      execArgv: [],
      env: {
        UV_THREADPOOL_SIZE: String(threads),
        ...Object.fromEntries(chosen.filter(([, value]) => value !== undefined)),
      },
      serialization: "json",
      stdio: ["ignore", "ignore", "pipe", "ipc"],
    });
    const run = new ProxyProcess(child, options);
    asOrdinary(child.pid);
    run.#listen(options.onExit);
    run.send({ type: "configure", configuration: options.configuration });
    try {
      const late = () =>
        new AppError("host_not_ready", `The egress proxy was not ready within ${readyMs} ms`);
      await withDeadline(run.#ready.promise, readyMs, late);
      return run;
    } catch (error) {
      child.kill("SIGKILL");
      throw error;
    }
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Rejects with ProxyExited if the process exits first, or with the AppError of the proxy. */
  async ask(request: Request): Promise<Answer> {
    if (this.#hasExited) throw new ProxyExited();
    if (this.#pending.size >= maxPending)
      throw new AppError("capacity_exhausted", "Too many requests wait for the egress proxy");
    const seq = this.#nextSeq++;
    const answer = createDeferred<Answer>();
    this.#pending.set(seq, answer);
    try {
      this.send({ ...request, seq } as ToProxy);
      const late = () =>
        new AppError("deadline_exceeded", `The egress proxy did not answer within ${answerMs} ms`);
      return await withDeadline(answer.promise, answerMs, late);
    } finally {
      this.#pending.delete(seq);
    }
  }

  send(message: ToProxy): void {
    // A failure means that the process exits, which is seen for itself.
    if (this.#child.connected) this.#child.send(message, () => undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#hasExited) return;
    const exited = once(this.#child, "exit");
    if (this.#child.connected) this.#child.disconnect();
    if ((await within(exited, exitMs)) !== undefined) return;
    this.#child.kill("SIGKILL");
    await within(exited, exitMs);
  }

  #listen(onExit: () => void): void {
    const child = this.#child;
    const lines = new LineSplitter({ maxLength: 64 * 1024 });
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      for (const line of lines.push(text)) this.#logLine(line);
      if (lines.isTooLong) lines.takeRest();
    });
    child.on("message", (value) => this.#receive(value));
    const end = (): void => {
      if (this.#hasExited) return;
      this.#hasExited = true;
      this.#ready.reject(new AppError("host_not_ready", "The egress proxy exited while it started"));
      for (const answer of this.#pending.values()) answer.reject(new ProxyExited());
      if (this.#isReady) onExit();
    };
    child.on("exit", end);
    child.on("error", end);
    // Without its channel it cannot be used; it exits, or is ended here.
    child.on("disconnect", () => setTimeout(() => child.kill("SIGKILL"), exitMs).unref());
  }

  #receive(value: unknown): void {
    const { data: message, error } = fromProxySchema.safeParse(value);
    if (!message) {
      this.#log.error({ event: "egress.bad_message", reason: errorMessage(error) });
      return;
    }
    if (message.type === "ready") {
      this.#isReady = true;
      this.#ready.resolve();
    } else if (message.type === "done") this.#pending.get(message.seq)?.resolve(message);
    else if (message.type === "failed") this.#pending.get(message.seq)?.reject(fromErrorBody(message.error));
    else this.#onReport(message);
  }

  /** Its own log lines are JSON with a level. */
  #logLine(line: string): void {
    try {
      const { level, time: _, ...fields } = JSON.parse(line) as Record<string, unknown>;
      this.#log[level === "error" ? "error" : level === "warn" ? "warn" : "info"](fields);
    } catch {
      if (line.trim() !== "") this.#log.warn({ event: "egress.output", line });
    }
  }
}
