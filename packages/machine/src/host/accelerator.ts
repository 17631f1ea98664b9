/**
 * Which accelerator really runs guests on this host.
 *
 * The presence of /dev/kvm is not enough: where the module is kvm_pvm an ordinary kernel is interpreted instruction by
 * instruction and dies. So the modules are looked at first, and then a guest is booted to see it live.
 */
import { access, constants, stat } from "node:fs/promises";
import { isErrno } from "@forkd/base";
import { errorMessage, type Accelerator } from "@forkd/contract";

export type AcceleratorChoice = {
  accelerator: Accelerator;
  /** for a person */
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

/** Why KVM cannot be used, from what can be seen without starting anything; undefined if nothing speaks against it. */
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
 * `probe` boots a small guest and tells whether it lived; it throws if that could not be tried. Then what can be seen decides: a
 * daemon that starts on a full disk would else emulate for all its life.
 */
export async function chooseAccelerator(
  wanted: "auto" | Accelerator,
  probe: (accelerator: Accelerator) => Promise<string | undefined>,
  seen: () => Promise<string | undefined> = kvmObstacle,
): Promise<AcceleratorChoice> {
  if (wanted !== "auto") return { accelerator: wanted, reason: "set by configuration" };
  let obstacle = await seen();
  try {
    obstacle ??= await probe("kvm");
  } catch (error) {
    const why = errorMessage(error);
    return { accelerator: "kvm", reason: `KVM is there; whether it runs guests could not be tried: ${why}` };
  }
  if (obstacle === undefined) return { accelerator: "kvm", reason: "KVM runs guests on this host" };
  return { accelerator: "tcg", reason: `software emulation: ${obstacle}` };
}
