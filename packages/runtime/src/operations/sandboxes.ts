/** Sandboxes: list, describe, end, time to live, sign of life, console. */
import { watch } from "node:fs";
import { open, stat } from "node:fs/promises";
import { AppError, type ParsedOf, type SandboxInfo } from "@forkd/contract";
import { mapPool, withDeadline } from "@forkd/base";
import { tailOf } from "@forkd/machine";
import type { Context } from "../context.ts";
import type { SandboxHome } from "../sandbox/paths.ts";
import { hasLabels } from "../observe/label-filter.ts";
import type { Runtime } from "../runtime.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";

const pingMs = 10_000;
const maxConsoleBytes = 16 * 1024 * 1024;

type SandboxFilter = Omit<ParsedOf<"listSandboxes">, "limit" | "cursor">;

/** Those that match, the oldest first. */
export function listSandboxes(runtime: Runtime, filter: SandboxFilter): SandboxInfo[] {
  return runtime.registry
    .all()
    .map((sandbox) => sandbox.info())
    .filter(
      (info) =>
        (filter.tag === undefined || info.snapshot_tag === filter.tag) &&
        (filter.state === undefined || info.state === filter.state) &&
        (filter.workspace === undefined || info.workspace === filter.workspace) &&
        (filter.owner === undefined || info.owner === filter.owner) &&
        (filter.label === undefined || hasLabels(info.labels, filter.label)),
    )
    .sort(byAge);
}

/** What neither the clock nor anything that happens later can reorder. */
export function byAge(
  a: { created_at_unix: number; id: string },
  b: { created_at_unix: number; id: string },
): number {
  return a.created_at_unix - b.created_at_unix || (a.id < b.id ? -1 : 1);
}

export function getSandbox(runtime: Runtime, { id }: { id: string }): SandboxInfo {
  return runtime.registry.get(id).info();
}

export async function kill(runtime: Runtime, { id }: { id: string }): Promise<void> {
  const { home } = runtime.registry.get(id);
  await runtime.registry.remove(id);
  await requireGone(id, home);
}

/** One whose record is still there would be found again by a later daemon. */
async function requireGone(id: string, { recordPath }: SandboxHome): Promise<void> {
  const isThere = await stat(recordPath).then(
    () => true,
    () => false,
  );
  if (!isThere) return;
  throw new AppError(
    "internal",
    `Killed ${id}, but cannot remove ${recordPath}, so a restarted daemon would find the sandbox again`,
    { details: { id }, remedy: { action: "clean_up" } },
  );
}

/** Kills what matches; without a filter the processes that wait in the pool go too, so that nothing of a sandbox is left. */
export async function killAll(runtime: Runtime, filter: ParsedOf<"killAll">): Promise<{ killed: string[] }> {
  const ids = listSandboxes(runtime, filter).map(({ id }) => id);
  const homes = new Map<string, SandboxHome>();
  const killed = await mapPool(ids, 16, async (id) => {
    const sandbox = runtime.registry.find(id);
    if (sandbox === undefined) return undefined;
    homes.set(id, sandbox.home);
    await runtime.registry.remove(id);
    return id;
  });
  if (filter.tag === undefined && filter.label === undefined) await runtime.pool.empty();
  for (const [id, home] of homes) await requireGone(id, home);
  return { killed: killed.filter((id) => id !== undefined) };
}

export async function ping(
  runtime: Runtime,
  { id }: { id: string },
): Promise<{ ok: boolean; round_trip_ms: number }> {
  const { agent } = runtime.registry.get(id);
  const start = performance.now();
  await withDeadline(
    agent.ping(),
    pingMs,
    () => new AppError("agent_unreachable", `The agent in ${id} did not answer within ${pingMs} ms`),
  );
  return { ok: true, round_trip_ms: performance.now() - start };
}

/** The console so far (or its last lines), and with `follow` what comes after it. */
export async function consoleLog(
  runtime: Runtime,
  { id, follow, tail }: ParsedOf<"logs">,
  { signal }: Context,
): Promise<AsyncIterable<Uint8Array>> {
  const sandbox = runtime.registry.get(id);
  const machine = sandbox.machineAtWork;
  const text = machine ? await tailOf(machine.paths.consolePath, maxConsoleBytes) : sandbox.lastConsole;
  const lines = text === "" ? "" : `${text}\n`;
  const first =
    tail === undefined
      ? lines
      : `${lines
          .split("\n")
          .slice(-tail - 1)
          .join("\n")}`;
  return follow && machine ? followConsole(machine, first, signal) : one(Buffer.from(first));
}

async function* one(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

async function* followConsole(
  machine: SandboxMachine,
  first: string,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array> {
  await using file = await open(machine.paths.consolePath, "r");
  let offset = (await file.stat()).size;
  yield Buffer.from(first);
  let wake = () => {};
  let woken = new Promise<void>((resolve) => (wake = resolve));
  const rearm = () => {
    woken = new Promise<void>((resolve) => (wake = resolve));
  };
  const watcher = watch(machine.paths.consolePath, () => wake());
  let ended = false;
  const stop = () => wake();
  signal?.addEventListener("abort", stop, { once: true });
  void machine.ended.then(() => {
    ended = true;
    wake();
  });
  try {
    for (;;) {
      rearm();
      // A console that was cut goes on at its beginning.
      offset = Math.min(offset, (await file.stat()).size);
      const buffer = Buffer.alloc(65536);
      const { bytesRead } = await file.read(buffer, 0, buffer.length, offset);
      offset += bytesRead;
      if (bytesRead > 0) yield buffer.subarray(0, bytesRead);
      else if (signal?.aborted || ended) return;
      else await woken;
    }
  } finally {
    watcher.close();
    signal?.removeEventListener("abort", stop);
  }
}
