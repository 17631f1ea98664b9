/** Runs the demo of a recipe: a program of this host that uses the daemon, and whose last line is its result. */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { advice, AppError } from "@forkd/contract/wire";
import { findDaemon } from "@forkd/sdk/node";
import type { ShelfEntry } from "./shelf.ts";

/** ms from the request to end to SIGKILL; a demo kills its sandboxes in between */
const graceMs = 20_000;
const mainPath = fileURLToPath(new URL("../main.js", import.meta.url));
const sdkPath = new URL("../../../../sdk/dist/src/node.js", import.meta.url).href;
const pythonSdk = fileURLToPath(new URL("../../../../../sdks/python/src", import.meta.url));

type DemoOutcome = {
  readonly ok: boolean;
  readonly seconds: number;
  readonly facts: Record<string, unknown>;
  readonly error?: string;
};

type DemoRun = {
  readonly entry: ShelfEntry & { readonly demo: string };
  readonly tag: string;
  readonly variables: NodeJS.ProcessEnv;
  readonly timeoutSecs: number;
  readonly signal: AbortSignal;
  /** Called for every line except the result. */
  readonly onLine: (stream: "stdout" | "stderr", line: string) => void;
};

/** Resolves when the demo has ended, also if it failed. Throws if it cannot be started or is interrupted. */
export async function runDemo(run: DemoRun): Promise<DemoOutcome> {
  // Its working directory: a demo may write files there.
  const dir = await mkdtemp(join(tmpdir(), "forkd-demo-"));
  try {
    const env = await environment(run, dir);
    const startedAt = performance.now();
    const end = await runProgram(run, { ...commandOf(run.entry), dir, env });
    if (run.signal.aborted)
      throw new AppError("cancelled", "The demo was interrupted", { cause: run.signal.reason });
    const seconds = Math.round(performance.now() - startedAt) / 1000;
    return { seconds, ...judge(run, end) };
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

type Command = { readonly program: string; readonly args: readonly string[] };

function commandOf({ dir, demo }: DemoRun["entry"]): Command {
  const path = join(dir, demo);
  // -u: lines arrive when they are printed.
  if (demo.endsWith(".py")) return { program: "python3", args: ["-u", path] };
  if (demo.endsWith(".mjs")) return { program: process.execPath, args: ["--import", sdkHook(), path] };
  return { program: path, args: [] };
}

/** In the installed package `import "forkd"` finds the SDK. In a checkout only this does. */
function sdkHook(): string {
  const resolve = `export function resolve(name, context, next) {
    return next(name === "forkd" ? ${JSON.stringify(sdkPath)} : name, context);
  }`;
  const register = `import { register } from "node:module"; register(${JSON.stringify(asModule(resolve))});`;
  return asModule(register);
}

function asModule(text: string): string {
  return `data:text/javascript,${encodeURIComponent(text)}`;
}

/** The variables that SDKs and CLI read, `forkd` on PATH, and the Python SDK with what demos share. */
async function environment({ entry, tag, variables }: DemoRun, dir: string): Promise<NodeJS.ProcessEnv> {
  const bin = join(dir, "bin");
  await mkdir(bin);
  const script = `#!/bin/sh\nexec '${process.execPath}' '${mainPath}' "$@"\n`;
  await writeFile(join(bin, "forkd"), script, { mode: 0o755 });
  const target = await findDaemon({}, variables);
  const python = [pythonSdk, join(entry.dir, "../_shared"), variables["PYTHONPATH"] ?? ""];
  return {
    ...variables,
    ...("socket" in target && { FORKD_SOCKET: target.socket }),
    FORKD_DEMO_TAG: tag,
    PATH: [bin, variables["PATH"] ?? ""].join(delimiter),
    PYTHONPATH: python.filter((each) => each !== "").join(delimiter),
    PYTHONDONTWRITEBYTECODE: "1",
  };
}

type Ended = {
  readonly code: number | null;
  readonly signal: string | null;
  readonly isLate: boolean;
  /** Last line of stdout and of stderr. */
  readonly last: string;
  readonly lastError: string;
};

/** The demo leads a process group, which is gone when this resolves. */
async function runProgram(
  run: DemoRun,
  { program, args, dir, env }: Command & { dir: string; env: NodeJS.ProcessEnv },
): Promise<Ended> {
  const child = spawn(program, args, {
    cwd: dir,
    env,
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const closed = new Promise<Pick<Ended, "code" | "signal">>((resolve, reject) => {
    child.once("close", (code, signal) => resolve({ code, signal }));
    child.once("error", (cause) => {
      const message = `Cannot start the demo: ${program} could not be started`;
      const remedy = advice(`Install ${program}, or put it on PATH.`);
      reject(new AppError("host_not_ready", message, { remedy, cause }));
    });
  });
  let [last, lastError] = ["", ""];
  let isLate = false;
  createInterface({ input: child.stdout }).on("line", (line) => {
    if (line.trim() === "") return;
    if (last !== "") run.onLine("stdout", last);
    last = line;
    // A result is the last line; anything else can be shown now.
    if (!line.startsWith("{")) {
      run.onLine("stdout", line);
      last = "";
    }
  });
  createInterface({ input: child.stderr }).on("line", (line) => {
    if (line.trim() !== "") lastError = line;
    run.onLine("stderr", line);
  });
  const timers: NodeJS.Timeout[] = [];
  const end = (signal: NodeJS.Signals) => {
    signalGroup(child, signal);
    timers.push(setTimeout(() => signalGroup(child, "SIGKILL"), graceMs));
  };
  const interrupt = () => end("SIGINT");
  timers.push(
    setTimeout(() => {
      isLate = true;
      // Like Ctrl-C: blocks of Python that own sandboxes kill them.
      end("SIGINT");
    }, run.timeoutSecs * 1000),
  );
  run.signal.addEventListener("abort", interrupt, { once: true });
  if (run.signal.aborted) interrupt();
  try {
    return { ...(await closed), isLate, last, lastError };
  } finally {
    for (const timer of timers) clearTimeout(timer);
    run.signal.removeEventListener("abort", interrupt);
    signalGroup(child, "SIGKILL"); // what the demo has left running
  }
}

function signalGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch {
    // the group has ended
  }
}

function judge(run: DemoRun, ended: Ended): Omit<DemoOutcome, "seconds"> {
  const { name } = run.entry;
  const result = parseResult(ended.last);
  if (result === undefined && ended.last !== "") run.onLine("stdout", ended.last);
  const facts = result?.facts ?? {};
  const fail = (error: string) => ({ ok: false, facts, error });
  if (ended.isLate) return fail(`it did not end within ${run.timeoutSecs} s`);
  if (ended.code !== 0) {
    const how = ended.signal === null ? `exit code ${ended.code}` : `signal ${ended.signal}`;
    return fail(ended.lastError === "" ? how : `${how}: ${ended.lastError.slice(0, 500)}`);
  }
  if (result === undefined) return fail("its last line is not a result: a JSON object with recipe and ok");
  if (result.recipe !== name) return fail(`its result names the recipe "${result.recipe}"`);
  return result.ok ? { ok: true, facts } : fail("its result is not ok");
}

type Printed = { readonly recipe: string; readonly ok: boolean; readonly facts: Record<string, unknown> };

function parseResult(line: string): Printed | undefined {
  try {
    const value = JSON.parse(line) as Partial<Printed> | null;
    if (typeof value?.recipe !== "string" || typeof value.ok !== "boolean") return undefined;
    const facts: unknown = value.facts ?? {};
    if (typeof facts !== "object" || facts === null || Array.isArray(facts)) return undefined;
    return { recipe: value.recipe, ok: value.ok, facts: { ...facts } };
  } catch {
    return undefined;
  }
}
