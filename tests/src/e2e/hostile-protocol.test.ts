/**
 * Guests that break the agent protocol and the kernel protocol from inside a real VM, eight at once: every
 * message type, in every way. Only their own calls fail, each with a code of ours, and the daemon's memory
 * stays bounded. `npm run bench -- hostile` measures how long the daemon is busy meanwhile.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { test } from "node:test";
import { withDeadline } from "@forkd/base";
import { kernelAttacks } from "@forkd/bench/hostile-kernel";
import { attack, calls, makeImpostor, streamTargets, targets, ways } from "@forkd/bench/impostor";
import type { Target, Way } from "@forkd/bench/impostor";
import { ForkdError, Sandbox, type Forkd } from "@forkd/sdk";
import { endDaemon, withDaemons, type TestDaemon } from "../support/daemon.ts";
import { residentBytes, sh } from "../support/sandboxes.ts";

const mib = 1024 * 1024;
const maxGrowthBytes = 150 * mib;
/** Much longer than any deadline of the daemon: a call that needs it never ends. */
const callDeadlineMs = 150_000;
/** What a guest can cost its own caller. */
const stableCodes = new Set([
  "agent_unreachable",
  "sandbox_dead",
  "guest_refused",
  "capacity_exhausted",
  "deadline_exceeded",
  "kernel_failed",
  "engine_failed",
]);

/** calls that did not end as they must, so that one run shows all of them */
const failures: string[] = [];

/**
 * The call ends with an answer, or with an error that blames the guest. An answer that is a stream can only be
 * cut, which the SDK reports as a lost connection.
 */
async function endsWell(what: string, call: Promise<unknown>): Promise<void> {
  const late = () => new Error(`no answer within ${callDeadlineMs} ms`);
  try {
    await withDeadline(call, callDeadlineMs, late);
  } catch (error) {
    const code = error instanceof ForkdError ? error.code : "";
    const isCut = what.startsWith("read,") && code === "daemon_unreachable";
    if (!isCut && !stableCodes.has(code)) failures.push(`${what}: ${code} ${String(error).slice(0, 500)}`);
  }
}

/** A guest that has lost its machine is replaced, so that each call meets an impostor. */
class Attacker {
  readonly #forkd: Forkd;
  readonly #way: Way;
  #sandbox: Sandbox | undefined;

  constructor(forkd: Forkd, way: Way) {
    this.#forkd = forkd;
    this.#way = way;
  }

  async ready(): Promise<Sandbox> {
    const { info } = this.#sandbox ? await this.#forkd.sandboxes.get(this.#sandbox.id) : {};
    if (this.#sandbox && info?.state === "running") return this.#sandbox;
    await this.#sandbox?.kill();
    this.#sandbox = await this.#forkd.create("impostor");
    await attack(this.#sandbox, this.#way, targets);
    return this.#sandbox;
  }

  async each(wanted: readonly Target[]): Promise<void> {
    for (const target of wanted) {
      const sandbox = await this.ready();
      await endsWell(`${target}, ${this.#way}`, calls[target](sandbox));
    }
  }

  async allAtOnce(wanted: readonly Target[]): Promise<void> {
    const sandbox = await this.ready();
    await Promise.all(wanted.map((target) => endsWell(`${target}, ${this.#way}`, calls[target](sandbox))));
  }

  async end(): Promise<void> {
    await this.#sandbox?.kill();
  }
}

async function attackIn(forkd: Forkd, way: Way): Promise<void> {
  const attacker = new Attacker(forkd, way);
  if (way === "silent") await attacker.allAtOnce(targets);
  else if (way === "endless") {
    await attacker.allAtOnce(streamTargets);
    await attacker.each(targets.filter((target) => !streamTargets.includes(target)));
  } else await attacker.each(targets);
  await attacker.end();
}

async function attackFromKernel(forkd: Forkd): Promise<void> {
  const sandbox = await forkd.create("python");
  for (const [name, run] of Object.entries(kernelAttacks)) await endsWell(name, run(sandbox));
  assert.equal((await sandbox.eval("20 + 1")).resultJson, 21);
  await sandbox.kill();
}

/** Asks the bystander, and reads the daemon's memory, until `work` is done. */
async function whileWatched(
  daemon: TestDaemon,
  bystander: Sandbox,
  work: Promise<unknown>,
): Promise<{ grownBytes: number }> {
  const before = residentBytes(daemon.process.pid);
  let peak = before;
  let isOver = false;
  void work.finally(() => (isOver = true)).catch(() => undefined);
  const timer = setInterval(() => (peak = Math.max(peak, residentBytes(daemon.process.pid))), 20);
  try {
    do assert.equal(await sh(bystander, "echo well"), "well");
    while (!isOver);
    await work;
  } finally {
    clearInterval(timer);
  }
  return { grownBytes: peak - before };
}

/** A fork of a guest that attacks the answer to AFTER_FORK. */
async function attackFork(forkd: Forkd, way: Way): Promise<void> {
  const source = await forkd.create("impostor");
  await attack(source, way, ["after_fork"]);
  const tag = `fork-${way}`;
  await source.branch({ tag });
  await source.kill();
  const forked = forkd.fork(tag).then(async ([child]) => {
    if (!(child instanceof Sandbox)) throw child;
    await child.kill();
  });
  await endsWell(`after_fork, ${way}`, forked);
}

/** At most eight guests at once, as many as the limit of the growth is meant for. */
async function attackInTurn(forkd: Forkd): Promise<void> {
  await Promise.all([...ways.map((way) => attackIn(forkd, way)), attackFromKernel(forkd)]);
  await Promise.all(ways.map((way) => attackFork(forkd, way)));
}

test("guests that break the protocol in every way cost only their own calls", async (t) => {
  await withDaemons(["tiny", "python"], async (start) => {
    let daemon = await start();
    const { forkd } = daemon;
    await makeImpostor(forkd, "tiny", "impostor");
    let bystander = await forkd.create("tiny");
    const { grownBytes } = await whileWatched(daemon, bystander, attackInTurn(forkd));
    assert.deepEqual(failures, []);
    t.diagnostic(`the daemon grew by ${Math.round(grownBytes / mib)} MiB`);
    assert.ok(grownBytes <= maxGrowthBytes, `the daemon grew by ${Math.round(grownBytes / mib)} MiB`);

    // A daemon that starts meets them too: HELLO and LIST are its first requests.
    const hostile = await Promise.all(
      ways.map(async (way) => {
        const sandbox = await forkd.create("impostor");
        await attack(sandbox, way, ["hello", "list"]);
        return sandbox;
      }),
    );
    await endDaemon(daemon, "SIGKILL");
    daemon = await start();
    bystander = await daemon.forkd.sandboxes.get(bystander.id);
    assert.equal(await sh(bystander, "echo well"), "well");
    for (const { id } of hostile) {
      const { info } = await daemon.forkd.sandboxes.get(id);
      if (info.state !== "running") assert.ok(info.reason, `${id} is ${info.state} without a reason`);
      await daemon.forkd.sandboxes.kill(id);
    }

    assert.equal(await sh(bystander, "echo well"), "well");
    const left = await daemon.forkd.sandboxes.list().all();
    assert.deepEqual(
      left.map(({ id }) => id),
      [bystander.id],
    );
    assert.equal(daemon.process.exitCode, null);
    assert.doesNotMatch(daemon.log(), /unhandled/i);
  });
});
