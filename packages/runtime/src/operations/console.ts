/** The console of a sandbox. */
import { watch } from "node:fs";
import { open } from "node:fs/promises";
import type { ParsedOf } from "@forkd/contract";
import { Wakeup } from "@forkd/base";
import { tailOf } from "@forkd/machine";
import type { Context } from "../context.ts";
import type { Runtime } from "../runtime.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";

const maxConsoleBytes = 16 * 1024 * 1024;

/** The console so far (or its last lines), and with `follow` what comes after it. */
export async function consoleLog(
  runtime: Pick<Runtime, "registry">,
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
  const wakeup = new Wakeup();
  const notify = () => wakeup.notify();
  const watcher = watch(machine.paths.consolePath, notify);
  let hasEnded = false;
  signal?.addEventListener("abort", notify, { once: true });
  void machine.ended.then(() => {
    hasEnded = true;
    notify();
  });
  try {
    for (;;) {
      // A console that was truncated continues at its beginning.
      offset = Math.min(offset, (await file.stat()).size);
      const buffer = Buffer.alloc(65536);
      const { bytesRead } = await file.read(buffer, 0, buffer.length, offset);
      offset += bytesRead;
      if (bytesRead > 0) yield buffer.subarray(0, bytesRead);
      else if (signal?.aborted || hasEnded) return;
      else await wakeup.wait();
    }
  } finally {
    watcher.close();
    signal?.removeEventListener("abort", notify);
  }
}
