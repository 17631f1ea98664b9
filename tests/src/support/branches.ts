/** Helpers for tests of branches. */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { Sandbox, type Branch, type BranchOptions, type CommandHandle, type Forkd } from "@forkd/sdk";
import { until } from "@forkd/test-support";
import { sh } from "./sandboxes.ts";

/** Branches and asserts that every child is a sandbox. */
export async function branchInto(
  source: Sandbox,
  options: BranchOptions,
): Promise<{ branch: Branch; children: Sandbox[] }> {
  const branch = await source.branch(options);
  for (const entry of branch.children) if (!(entry instanceof Sandbox)) throw entry;
  assert.equal(branch.children.length, options.n ?? 0);
  return { branch, children: branch.children as Sandbox[] };
}

/** Collects the complete lines of a command's output. */
export class Lines {
  readonly all: string[] = [];
  readonly done: Promise<void>;
  #rest = "";

  constructor(handle: CommandHandle) {
    this.done = this.#read(handle);
    // A failure is reported to the test that awaits `done`.
    this.done.catch(() => undefined);
  }

  async #read(handle: CommandHandle): Promise<void> {
    for await (const event of handle) {
      if (event.type !== "stdout") continue;
      const parts = (this.#rest + event.data).split("\n");
      this.#rest = parts.pop() ?? "";
      this.all.push(...parts.map((line) => line.replace(/\r$/, "")));
    }
  }

  /** Waits for this many more lines. */
  async more(count: number): Promise<void> {
    const wanted = this.all.length + count;
    await until(`${count} more lines`, () => this.all.length >= wanted);
  }
}

/** Lines have the form `<word> <number>`, and each number is one more than the number before. */
export function assertConsecutive(lines: readonly string[], from?: number): void {
  assert.ok(lines.length > 0, "there are no lines");
  const numbers = lines.map((line) => Number(/(\d+)$/.exec(line)?.[1] ?? "NaN"));
  const first = from ?? numbers[0] ?? Number.NaN;
  const wrong = numbers.findIndex((number, index) => number !== first + index);
  assert.equal(
    wrong,
    -1,
    `after line ${wrong}: ${JSON.stringify(lines.slice(Math.max(0, wrong - 2), wrong + 3))}`,
  );
}

/** Waits until drafts and trash are removed and no snapshot is being written. */
export async function assertNoDrafts(forkd: Forkd, dataDir: string): Promise<void> {
  const hidden = () => [
    ...readdirSync(join(dataDir, "snapshots")).filter((name) => name.startsWith(".")),
    ...readdirSync(join(dataDir, "cache/memory")).filter((name) => name.startsWith(".")),
  ];
  await until("drafts are removed and nothing is being written", async () => {
    const list = await forkd.snapshots.list().all();
    return hidden().length === 0 && list.every(({ status }) => status !== "writing");
  });
}

/**
 * Asserts that `work` sets the guest's clock. The time may be that of any moment of `work`, and reading the
 * clock takes time too, so the guest may lag by the duration of both.
 */
export async function assertClockAfter<T>(
  work: () => Promise<T>,
  sandboxOf: (made: T) => Sandbox,
): Promise<T> {
  const began = Date.now() / 1000;
  const made = await work();
  const before = Date.now() / 1000;
  const { stdout } = await sandboxOf(made).commands.run(["date", "+%s"], { check: true });
  const after = Date.now() / 1000;
  const guest = Number(stdout);
  // `date` prints whole seconds, and the clocks drift a little.
  const slack = 1.05;
  assert.ok(
    guest >= began - slack && guest <= after + slack,
    `the guest's clock says ${guest}; it was set after ${began} and read from ${before} to ${after}`,
  );
  return made;
}

/** Host name, machine id and boot id. */
export async function identityOf(sandbox: Sandbox): Promise<string[]> {
  const { stdout } = await sandbox.commands.run(
    ["sh", "-c", "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id"],
    { check: true },
  );
  return stdout.trim().split("\n");
}

/** Asserts that a ready snapshot works and a failed one has a reason. Removes it; returns its status. */
export async function assertStatusIsTrue(forkd: Forkd, tag: string): Promise<string> {
  const listed = (await forkd.snapshots.list().all()).find((each) => each.tag === tag);
  if (!listed) return "absent";
  if (listed.status === "ready") {
    const child = await forkd.create(tag);
    assert.equal(await sh(child, "cat /root/marker"), "marked");
    await child.kill();
  } else {
    assert.equal(listed.status, "failed");
    assert.ok(listed.warning, `${tag} failed without a reason`);
  }
  await forkd.snapshots.remove(tag);
  return listed.status;
}
