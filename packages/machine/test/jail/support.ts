/** For tests: programs in a jail, started as the daemon starts a VMM. */
import assert from "node:assert/strict";
import { spawn, type ChildProcess, type StdioOptions } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";
import { text } from "node:stream/consumers";
import { nativeTool, withDeadline } from "@forkd/base";
import { temporaryDirectory } from "@forkd/test-support";
import { identify, type ProcessId } from "../../src/host/procfs.ts";

export const isRoot = process.getuid?.() === 0;
/** Reported by tests that only root can run. */
export const needsRoot = isRoot ? false : "only root can start machines as other users";

const nobody = 65534;
const deadlineMs = 30_000;

export type Variant = "root" | "user" | "none";

/** The user that starts the launcher: root can also play an ordinary user. */
export function starter(variant: Variant): number {
  return variant !== "root" && isRoot ? nobody : (process.getuid?.() ?? 0);
}

export const memoryBytes = 65_536;
export const limitBytes = 1_000_000;

/** A host with one machine on it. Everybody can read the programs and enter the directories. */
export class Place {
  readonly dir: string;
  readonly machine: string;
  readonly memory: string;
  /** files of other users that the machine must not read */
  readonly secrets: string[];
  readonly #bin: string;

  private constructor(dir: string) {
    this.dir = dir;
    this.machine = join(dir, "machines", "one");
    this.memory = join(dir, "memory");
    this.secrets = [join(dir, "token"), join(dir, "machines", "two", "disk")];
    this.#bin = join(dir, "bin");
  }

  static async make(t: TestContext, variant: Variant): Promise<Place> {
    const place = new Place(await temporaryDirectory(t));
    const uid = starter(variant);
    const other = join(place.dir, "machines", "two");
    for (const dir of [place.dir, place.#bin]) {
      mkdirSync(dir, { recursive: true });
      chmodSync(dir, 0o755);
    }
    mkdirSync(other, { recursive: true });
    mkdirSync(place.machine);
    // The directory belongs to the user that starts machines, so the user of a machine cannot add files.
    chmodSync(place.machine, 0o711);
    writeFileSync(place.memory, Buffer.alloc(memoryBytes, 7), { mode: 0o644 });
    writeFileSync(join(place.machine, "disk"), "disk", { mode: 0o600 });
    // In the variants without a user per machine, only the jail protects the files of other machines.
    for (const path of [place.machine, join(place.machine, "disk"), place.memory, other])
      chownSync(path, uid, uid);
    for (const path of place.secrets) {
      writeFileSync(path, "secret", { mode: 0o600 });
      chownSync(path, uid, uid);
    }
    return place;
  }

  /** A copy of a program that every user can execute. */
  program(name: string): string {
    const path = join(this.#bin, name);
    copyFileSync(nativeTool(name), path);
    chmodSync(path, 0o755);
    return path;
  }
}

export type Start = {
  variant: Variant;
  /** user in the root variant */
  uid?: number;
  options?: readonly string[];
  program: string;
  args?: readonly string[];
  stdio?: StdioOptions;
  /** the program before the launcher */
  before?: readonly string[];
};

/** A program that the launcher has started or that the launcher itself is. */
export class Jailed {
  readonly child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #errors: Promise<string>;

  constructor(t: TestContext, place: Place, start: Start) {
    const { variant, program } = start;
    const uid = starter(variant);
    const users = variant === "root" ? ["--uids", `${start.uid ?? 200_001}:1`] : [];
    const command = [
      ...(start.before ?? []),
      ...[place.program("forkd-launch"), "--variant", variant, ...users],
      ...["--read", program, ...(start.options ?? []), "--", program, ...(start.args ?? [])],
    ];
    this.child = spawn(command[0] ?? "", command.slice(1), {
      stdio: start.stdio ?? ["pipe", "pipe", "pipe"],
      cwd: "/",
      ...(uid !== process.getuid?.() && { uid, gid: uid }),
    });
    const { stdin, stdout, stderr } = this.child;
    assert.ok(stdin && stdout && stderr);
    stdin.on("error", () => undefined);
    this.#lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
    this.#errors = text(stderr);
    t.after(() => this.kill());
  }

  get id(): ProcessId {
    const id = identify(this.child.pid ?? 0);
    assert.ok(id);
    return id;
  }

  async line(): Promise<string | undefined> {
    const next = await within(this.#lines.next());
    return next.done ? undefined : next.value;
  }

  ask(line: string): Promise<string | undefined> {
    this.child.stdin?.write(`${line}\n`);
    return this.line();
  }

  /** All output, how it ended and its errors. */
  async result(): Promise<{ output: string; code: number | null; signal: string | null; errors: string }> {
    const lines: string[] = [];
    this.child.stdin?.end();
    for (let line = await this.line(); line !== undefined; line = await this.line()) lines.push(line);
    const errors = await within(this.#errors);
    if (this.child.exitCode === null && this.child.signalCode === null)
      await within(once(this.child, "exit"));
    const { exitCode: code, signalCode: signal } = this.child;
    return { output: lines.join("\n"), code, signal, errors };
  }

  async kill(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    this.child.kill("SIGKILL");
    await within(once(this.child, "exit"));
  }
}

export function within<T>(promise: Promise<T>): Promise<T> {
  return withDeadline(promise, deadlineMs, () => new Error(`nothing happened for ${deadlineMs} ms`));
}
