/**
 * Second step of a machine: load the state, run, and do the after-fork step in agent and kernels. A failure leaves nothing of the
 * machine.
 */
import { randomBytes } from "node:crypto";
import { AppError, type AskedLimits } from "@forkd/contract";
import { Scope, withDeadline } from "@forkd/base";
import { AgentClient, writeFile as writeGuestFile } from "@forkd/machine";
import { diagnose, holdToLimits, makeGroup, notEnforceable } from "../admission/limits.ts";
import { wallClock } from "../capture/guest-clock.ts";
import type { Runtime } from "../runtime.ts";
import type { GuestIdentity } from "../sandbox/paths.ts";
import { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import type { PreparedIncarnation } from "./prepared.ts";
import { attachKernel } from "./warm-kernel.ts";

/** What a machine is told in its first moments. */
export type Birth = {
  identity: GuestIdentity;
  env: Record<string, string>;
  /** JSON for /run/forkd/values.json */
  values?: unknown;
  limits?: AskedLimits | undefined;
  /** what the disk of the sandbox took before this machine */
  diskUsedBytes?: number | undefined;
  /** when the caller asked */
  askedAt: number;
  pooled: boolean;
};

export async function startMachine(
  runtime: Pick<Runtime, "cgroups" | "config" | "engine" | "log">,
  prepared: PreparedIncarnation,
  birth: Birth,
): Promise<SandboxMachine> {
  await using machineScope = prepared.scope.keep();
  await using scope = new Scope();
  const { manifest } = prepared.snapshot;
  const group = makeGroup(runtime, prepared, birth.limits);
  // A group can be removed when its machine has ended, so it goes last.
  if (group) scope.use(group);
  scope.use(machineScope.keep());
  await holdToLimits(prepared, group, birth.limits, birth.diskUsedBytes);
  const explain = diagnose(group, birth.limits, manifest.machine.memory_mib);
  const agent = scope.use(
    AgentClient.open(prepared.machine.agentSocket, {
      atBoundary: manifest.agent_at_boundary ?? true,
      helloTimeoutMs: runtime.config.readyTimeoutMs,
      log: runtime.log,
    }),
  );
  const answered = async () => {
    // The host's hello is in the socket before the guest's first instruction.
    const machine = await prepared.machine.start();
    const afterFork = agent.afterFork({ entropy: randomBytes(64), realtimeNs: wallClock, ...birth.identity });
    const kernels = manifest.kernels.map((record) => attachKernel(agent, record));
    const seeded = kernels.map(({ client }, nth) => {
      const done = client.afterFork(randomBytes(64), birth.env);
      if ((manifest.kernels[nth]?.unanswered.length ?? 0) === 0) return done;
      // It is in the middle of an eval. The agent has had it re-seed its generators; the rest follows the eval, and a
      // kernel that cannot do it must not be used.
      done.catch(() => client[Symbol.asyncDispose]().catch(() => undefined));
      return undefined;
    });
    await Promise.all([agent.ready, afterFork, ...seeded]);
    // The time that was sent ahead is as old as the start was long. Nobody waits for the correction.
    agent.setClock(wallClock).catch(() => undefined);
    if (birth.values !== undefined) {
      await writeGuestFile(agent, "/run/forkd/values.json", [Buffer.from(JSON.stringify(birth.values))]);
    }
    return { machine, kernels: new Map(kernels.map((kernel) => [kernel.language, kernel])) };
  };
  const died = prepared.machine.exited.then((reason): never => {
    throw new AppError(
      "engine_failed",
      `Cannot start a child of "${prepared.snapshot.tag}": ${explain(reason) ?? reason.text}`,
      {
        details: { reason: reason.text, log: reason.log, console: reason.console },
      },
    );
  });
  died.catch(() => undefined);
  const { machine, kernels } = await withDeadline(
    Promise.race([answered(), died]),
    runtime.config.readyTimeoutMs,
    () =>
      new AppError(
        "agent_unreachable",
        `The agent in ${prepared.id} did not answer within ${runtime.config.readyTimeoutMs} ms`,
      ),
  );
  return new SandboxMachine({
    number: prepared.number,
    base: prepared.snapshot,
    paths: prepared.paths,
    machine,
    agent,
    kernels,
    imageStamp: prepared.imageStamp,
    scope: scope.keep(),
    readyMs: performance.now() - birth.askedAt,
    pooled: birth.pooled,
    notEnforced: notEnforceable(runtime, birth.limits),
    diagnose: explain,
  });
}
