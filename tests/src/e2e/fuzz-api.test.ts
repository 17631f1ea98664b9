/**
 * Sends ten thousand random requests to one daemon. Every answer must match the OpenAPI document, and the
 * daemon and its sandboxes must keep running. `FORKD_FUZZ_SEED` repeats a run.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { Agent } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { mapPool } from "@forkd/base";
import { ForkdError } from "@forkd/sdk";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { Judge } from "../support/fuzz/judge.ts";
import type { Document } from "../support/fuzz/operations.ts";
import { rawAttacks } from "../support/fuzz/raw-attacks.ts";
import { keeper, pythonKeeper, requests, victim, type FuzzRequest } from "../support/fuzz/requests.ts";
import { send, sendRaw, type SendOptions } from "../support/fuzz/send.ts";
import { Random } from "../support/random.ts";
import { until } from "@forkd/test-support";
import { forkAll, residentBytes, sh } from "../support/sandboxes.ts";

const seed = Number(process.env["FORKD_FUZZ_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const total = Number(process.env["FORKD_FUZZ_COUNT"] ?? 10_000);
/** for very slow hosts */
const timeout = 900_000;
const raw = Math.round(total / 20);
const atOnce = 24;
/** Longer than any answer takes, except streams and commands. */
const timeoutMs = 300_000;
/** Commands and streams may never end, so the client disconnects. */
const shortTimeoutMs = 400;
const mib = 1024 * 1024;

function openFiles(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

function unlessGone(error: unknown): void {
  const isGone =
    error instanceof ForkdError && ["sandbox_not_found", "workspace_not_found"].includes(error.code);
  if (!isGone) throw error;
}

async function documentOf(options: SendOptions): Promise<Document> {
  const answer = await send(
    { method: "GET", target: "/openapi.json", headers: {}, body: undefined },
    options,
  );
  return JSON.parse(answer?.body.toString() ?? "") as Document;
}

/** A sandbox that any request may change or kill; replaced when it is gone. */
class Victims {
  readonly #daemon: TestDaemon;
  #current = "sb-000000000000000000000000";
  #renewing: Promise<void> | undefined;

  constructor(daemon: TestDaemon) {
    this.#daemon = daemon;
  }

  get current(): string {
    return this.#current;
  }

  /** Also kills other sandboxes, so that the run's forks stay below the limit. */
  renew(keepers: readonly string[]): Promise<void> {
    this.#renewing ??= this.#renew(keepers).finally(() => (this.#renewing = undefined));
    return this.#renewing;
  }

  async #renew(keepers: readonly string[]): Promise<void> {
    const all = (await this.#daemon.forkd.sandboxes.list().all()).filter(({ id }) => !keepers.includes(id));
    const alive = all.find(({ id, info }) => id === this.#current && info.state === "running");
    for (const { id } of all.filter((each) => each !== alive))
      await this.#daemon.forkd.sandboxes.kill(id).catch(() => undefined);
    if (alive) return;
    const fresh = await this.#daemon.forkd
      .create("tiny", { labels: { fuzz: "1" } })
      .catch((error: unknown) => {
        // Forks of the run may have used up the capacity again. The next call tries again.
        if (error instanceof ForkdError && error.code === "capacity_exhausted") return undefined;
        throw error;
      });
    this.#current = fresh?.id ?? this.#current;
  }
}

test(`every answer matches the OpenAPI document (FORKD_FUZZ_SEED=${seed})`, { timeout }, async (t) => {
  await using daemon = await startDaemon({
    snapshots: ["tiny", "python"],
    ownImages: true,
    env: { FORKD_MAX_SANDBOXES: "10", FORKD_LOG_LEVEL: "warn" },
  });
  const pid = daemon.process.pid ?? 0;
  daemon.process.once(
    "exit",
    (code) => code !== 0 && t.diagnostic(`the daemon exited: ${daemon.log().slice(-3000)}`),
  );
  const agent = new Agent({ keepAlive: true, maxSockets: atOnce });
  const options = { socketPath: daemon.socket, agent, timeoutMs };
  const judge = new Judge(await documentOf(options));
  const [kept] = await forkAll(daemon.forkd, "tiny", 1);
  const [python] = await forkAll(daemon.forkd, "python", 1);
  assert.ok(kept && python);
  const keepers = [kept.id, python.id];
  const victims = new Victims(daemon);
  await victims.renew(keepers);

  const faults: string[] = [];
  const seen = new Map<string, number>();
  const count = (what: string): void => void seen.set(what, (seen.get(what) ?? 0) + 1);
  const named = (text: string) =>
    text.replaceAll(keeper, kept.id).replaceAll(pythonKeeper, python.id).replaceAll(victim, victims.current);
  const one = async (request: FuzzRequest, index: number): Promise<void> => {
    const target = named(request.target);
    const body = request.body === undefined ? undefined : named(request.body);
    const short = judge.mayStream(request.method, target);
    const addFault = (fault: string) =>
      faults.push(
        `#${index} ${request.method} ${target.slice(0, 300)} ${body?.slice(0, 300) ?? ""}\n      → ${fault}`,
      );
    if (index % 200 === 199) await victims.renew(keepers);
    try {
      const answer = await send(
        { ...request, target, body },
        { ...options, timeoutMs: short ? shortTimeoutMs : timeoutMs },
      );
      if (answer === undefined) return void (short ? count("left") : addFault("no answer"));
      count(String(answer.status));
      const fault = judge.fault(request.method, target, answer);
      if (fault !== undefined) addFault(fault);
    } catch (error) {
      // The client itself refused to send the request.
      if (error instanceof TypeError) return count("not sent");
      // The parser answers an invalid request before it knows the method, so that even HEAD gets a body.
      if (request.method === "HEAD" && String(error).includes("Data after")) return count("400");
      addFault(`connection: ${String(error)}`);
    }
  };
  const attack = async (): Promise<void> => {
    const random = new Random(seed + 1);
    await mapPool([...rawAttacks(raw, random)], 8, async ({ name, bytes, replies }) => {
      const wait = replies === undefined ? { timeoutMs: 50 } : { timeoutMs, replies };
      const answers = await sendRaw(daemon.socket, bytes, wait);
      if (replies !== undefined && answers.length < replies)
        faults.push(`${name}: ${answers.length} of ${replies} answers`);
      for (const { status, headers, body } of answers.filter((each) => each.status >= 400)) {
        count(`raw ${status}`);
        const fault = judge.fault("GET", "/", {
          status,
          type: /^content-type: *([^\r;]+)/im.exec(headers)?.[1] ?? "",
          requestId: /^x-request-id: *([^\r]+)/im.exec(headers)?.[1],
          body: Buffer.from(body, "latin1"),
          whole: true,
        });
        if (fault !== undefined) faults.push(`${name}: ${fault}`);
      }
    });
  };

  // Load all code before memory is measured.
  await mapPool([...requests(judge.operations, 300, new Random(seed + 2))], atOnce, one);
  const before = { memory: residentBytes(pid), files: openFiles(pid) };
  const all = [...requests(judge.operations, total - raw, new Random(seed))];
  await Promise.all([mapPool(all, atOnce, one), attack()]);

  t.diagnostic(`seed ${seed}: ${JSON.stringify(Object.fromEntries([...seen].sort()))}`);
  assert.equal(daemon.process.exitCode, null, daemon.log().slice(-3000));
  assert.deepEqual(faults.slice(0, 20), [], `${faults.length} faults; repeat with FORKD_FUZZ_SEED=${seed}`);
  assert.equal(await sh(kept, "echo alive"), "alive");
  assert.equal((await python.eval("6 * 7")).result, "42");

  agent.destroy();
  // Work of disconnected clients stops when the daemon notices; some sandboxes stop at their time to live.
  await until("only the kept sandboxes are left", async () => {
    for (const { name } of await daemon.forkd.workspaces.list().all())
      await daemon.forkd.workspaces.remove(name).catch(unlessGone);
    for (const { id } of await daemon.forkd.sandboxes.list().all())
      if (!keepers.includes(id)) await daemon.forkd.sandboxes.kill(id).catch(unlessGone);
    return readdirSync(join(daemon.dataDir, "sandboxes")).sort().join() === [...keepers].sort().join();
  });
  await until("files are closed", () => openFiles(pid) <= before.files + 2);
  const grown = residentBytes(pid) - before.memory;
  t.diagnostic(
    `the daemon's memory grew from ${Math.round(before.memory / mib)} MiB by ${Math.round(grown / mib)} MiB`,
  );
  assert.ok(grown < 200 * mib, `the daemon's memory grew by ${Math.round(grown / mib)} MiB`);
  assert.doesNotMatch(daemon.log(), /"level":60|unhandled/i);
});
