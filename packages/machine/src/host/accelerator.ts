/**
 * Chooses an accelerator that really runs guests on this host.
 *
 * The presence of /dev/kvm is not enough: kvm_pvm interprets a stock kernel instruction by instruction, and
 * the kernel crashes. So this checks the loaded modules first and then boots a small guest.
 */
import { access, constants, stat } from "node:fs/promises";
import { isErrno } from "@forkd/base";
import { errorMessage, type Accelerator } from "@forkd/contract";

export type AcceleratorChoice = {
  accelerator: Accelerator;
  /** for humans */
  reason: string;
};

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR")) return false;
    throw error;
  }
}

/** Why KVM cannot be used, as far as visible without a guest; undefined if there is no obstacle. */
export async function kvmObstacle(): Promise<string | undefined> {
  if (!(await exists("/dev/kvm"))) return "/dev/kvm does not exist";
  try {
    await access("/dev/kvm", constants.R_OK | constants.W_OK);
  } catch (error) {
    if (isErrno(error, "EACCES", "EPERM")) return "/dev/kvm is not accessible to this user";
    throw error;
  }
  const [pvm, intel, amd] = await Promise.all(
    ["kvm_pvm", "kvm_intel", "kvm_amd"].map((module) => exists(`/sys/module/${module}`)),
  );
  if (pvm) return "the KVM module is kvm_pvm, which does not run stock guest kernels";
  if (!intel && !amd) return "neither kvm_intel nor kvm_amd is loaded";
  return undefined;
}

/**
 * `probe` boots a small guest and returns the obstacle, if any. It throws if it cannot run, for example on a
 * full disk. Then `findObstacle` decides, so that the daemon does not use emulation until its next restart.
 */
export async function chooseAccelerator(
  wanted: "auto" | Accelerator,
  probe: (accelerator: Accelerator) => Promise<string | undefined>,
  findObstacle: () => Promise<string | undefined> = kvmObstacle,
): Promise<AcceleratorChoice> {
  if (wanted !== "auto") return { accelerator: wanted, reason: "set by configuration" };
  let obstacle = await findObstacle();
  try {
    obstacle ??= await probe("kvm");
  } catch (error) {
    const why = errorMessage(error);
    return { accelerator: "kvm", reason: `KVM is available, but a test boot could not be tried: ${why}` };
  }
  if (obstacle === undefined) return { accelerator: "kvm", reason: "KVM runs guests on this host" };
  return { accelerator: "tcg", reason: `software emulation: ${obstacle}` };
}
