/** Steps around branches that several tests take. */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { Sandbox, type Branch, type BranchOptions, type CommandHandle, type Forkd } from "@forkd/sdk";
import { until } from "@forkd/test-support";
import { sh } from "./sandboxes.ts";

/** Branches and demands that every child is a sandbox. */
export async function branchInto(
  source: Sandbox,
  options: BranchOptions,
): Promise<{ branch: Branch; children: Sandbox[] }> {
  const branch = await source.branch(options);
  for (const entry of branch.children) if (!(entry instanceof Sandbox)) throw entry;
  assert.equal(branch.children.length, options.n ?? 0);
  return { branch, children: branch.children as Sandbox[] };
}

/** Whole lines of a command's output, as they come. */
export class Lines {
  readonly all: string[] = [];
  readonly done: Promise<void>;
  #rest = "";

  constructor(handle: CommandHandle) {
    this.done = this.#read(handle);
    // Whoever waits for it meets the failure.
    this.done.catch(() => undefined);
  }

  async #read(handle: CommandHandle): Promise<void> {
    for await (const event of handle) {
      if (event.type === "error") throw new Error(event.error);
      if (event.type !== "stdout") continue;
      const parts = (this.#rest + event.data).split("\n");
      this.#rest = parts.pop() ?? "";
      this.all.push(...parts.map((line) => line.replace(/\r$/, "")));
    }
  }

  /** There are this many more than now. */
  async more(count: number): Promise<void> {
    const wanted = this.all.length + count;
    await until(`${count} more lines`, () => this.all.length >= wanted);
  }
}

/** `<word> <number>`, each number one more than the one before: none missing, none doubled. */
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

/** Drafts and trash are gone, and no tag is being written. What was given up may take a moment to be undone. */
export async function assertNothingHalfMade(forkd: Forkd, dataDir: string): Promise<void> {
  const hidden = () => [
    ...readdirSync(join(dataDir, "snapshots")).filter((name) => name.startsWith(".")),
    ...readdirSync(join(dataDir, "cache/memory")).filter((name) => name.startsWith(".")),
  ];
  await until("drafts are removed and nothing is being written", async () => {
    const list = await forkd.snapshots.list();
    return hidden().length === 0 && list.every(({ status }) => status !== "writing");
  });
}

/**
 * The guest's clock is right after `work`, which sets it: it was told the time while `work` lasted, so it lags by no more than that
 * took. What asking took is not held against it either.
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
  // It tells whole seconds, and the clocks drift by a little.
  const slack = 1.05;
  assert.ok(
    guest >= began - slack && guest <= after + slack,
    `the guest's clock says ${guest}; it was set after ${began} and read from ${before} to ${after}`,
  );
  return made;
}

/** What makes a guest itself. */
export async function identityOf(sandbox: Sandbox): Promise<string[]> {
  const { stdout } = await sandbox.commands.run(
    ["sh", "-c", "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id"],
    { check: true },
  );
  return stdout.trim().split("\n");
}

/** What is listed as ready can be used; what is not is absent, or failed with a reason. Gives the status of the tag. */
export async function assertHonest(forkd: Forkd, tag: string): Promise<string> {
  const listed = (await forkd.snapshots.list()).find((each) => each.tag === tag);
  if (!listed) return "absent";
  if (listed.status === "ready") {
    const child = await forkd.forkOne(tag);
    assert.equal(await sh(child, "cat /root/marker"), "marked");
    await child.kill();
  } else {
    assert.equal(listed.status, "failed");
    assert.ok(listed.warning, `${tag} failed without a reason`);
  }
  await forkd.snapshots.remove(tag);
  return listed.status;
}
