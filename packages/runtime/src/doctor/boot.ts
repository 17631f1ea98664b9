/**
 * Starts a guest on each accelerator that the host offers. A device node or a loaded module does not prove
 * that guests run.
 */
import { access, constants, readdir } from "node:fs/promises";
import { join } from "node:path";
import { isErrno, nullLogger } from "@forkd/base";
import { errorMessage, type Accelerator } from "@forkd/contract";
import { ensureKernel } from "@forkd/image";
import { kvmObstacle, measureTscKhz, QemuEngine } from "@forkd/machine";
import { agentPath, type RuntimeConfig } from "../config.ts";
import { probeBoot } from "./probe.ts";
import { fail, ok, warn, type Finding } from "./finding.ts";

/** an emulated guest on a busy host takes some seconds, one on KVM less than one */
const deadlinesMs = { tcg: 60_000, kvm: 10_000 } as const;

export type BootOptions = {
  readonly config: RuntimeConfig;
  /** ids in use, if a runtime is open */
  readonly places?: Set<string>;
};

export async function bootFindings(options: BootOptions): Promise<Finding[]> {
  const { config } = options;
  if (!(await hasKernel(config))) return lookedAt(options);
  const findings: Finding[] = [];
  if (config.accelerator !== "tcg") findings.push(await kvm(options));
  if (config.accelerator !== "kvm") findings.push(await tcg(options));
  return findings;
}

/** Without a boot. */
export async function lookedAt({ config }: BootOptions): Promise<Finding[]> {
  return [await kvmFinding(), ...((await hasKernel(config)) ? [] : [notTried(config)])];
}

async function kvmFinding(): Promise<Finding> {
  const obstacle = await kvmObstacle();
  return obstacle === undefined ? ok("kvm", "nothing speaks against it (not tried)") : withoutKvm(obstacle);
}

async function kvm(options: BootOptions): Promise<Finding> {
  const obstacle = await kvmObstacle();
  if (!(await opens("/dev/kvm"))) return withoutKvm(obstacle ?? "/dev/kvm does not open");
  const startedAt = performance.now();
  const failure = await tryBoot(options, "kvm");
  if (failure === undefined) return ok("kvm", `a guest ran on KVM (${since(startedAt)})`);
  return withoutKvm(`/dev/kvm opens, but ${failure}${obstacle === undefined ? "" : ` (${obstacle})`}`);
}

function withoutKvm(why: string): Finding {
  return warn(
    "kvm",
    `${why}; guests are emulated, which works and is slower`,
    "For full speed use a host with kvm_intel or kvm_amd, and be in the group kvm.",
  );
}

async function tcg(options: BootOptions): Promise<Finding> {
  const startedAt = performance.now();
  const failure = await tryBoot(options, "tcg");
  if (failure === undefined) return ok("emulation", `a guest ran under TCG (${since(startedAt)})`);
  return fail("emulation", failure, { action: "show_daemon_log" });
}

async function tryBoot(
  { config, places }: BootOptions,
  accelerator: Accelerator,
): Promise<string | undefined> {
  try {
    const [engine, tscKhz] = await Promise.all([
      QemuEngine.open(config.qemuPath, config.vmmDeadlines),
      measureTscKhz(agentPath(config)),
    ]);
    const deadlineMs = deadlinesMs[accelerator];
    return await probeBoot({
      config,
      engine,
      tscKhz,
      accelerator,
      deadlineMs,
      log: nullLogger(),
      ...(places && { places }),
    });
  } catch (error) {
    return errorMessage(error);
  }
}

/** Does not download a kernel unless asked to fix. */
function notTried(config: RuntimeConfig): Finding {
  return {
    ...warn("boot", "not tried: no guest kernel has been made yet", { action: "make_guest_kernel" }),
    fix: async () => {
      const { version } = await ensureKernel(join(config.dataDir, "images"));
      return `made a guest kernel, ${version}`;
    },
  };
}

async function hasKernel(config: RuntimeConfig): Promise<boolean> {
  try {
    const names = await readdir(join(config.dataDir, "images", "kernel"));
    return names.some((name) => !name.startsWith("."));
  } catch (error) {
    if (isErrno(error, "ENOENT")) return false;
    throw error;
  }
}

function opens(path: string): Promise<boolean> {
  return access(path, constants.R_OK | constants.W_OK).then(
    () => true,
    () => false,
  );
}

function since(startedAt: number): string {
  return `${((performance.now() - startedAt) / 1000).toFixed(1)} s`;
}
