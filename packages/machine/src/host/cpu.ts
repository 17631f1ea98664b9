/** The host's CPU as a guest sees it under KVM. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

/** Cached, because the CPU does not change and the kernel takes milliseconds to describe many CPUs. */
let known: string | undefined;

/** Vendor, family, model, stepping and a digest of the feature flags. Equal texts mean compatible hosts. */
export function hostCpuIdentity(): string {
  known ??= cpuIdentityIn(readFileSync("/proc/cpuinfo", "latin1"));
  return known;
}

/** Pure. */
export function cpuIdentityIn(cpuinfo: string): string {
  const field = (name: string) => new RegExp(`^${name}\\s*: (.*)$`, "m").exec(cpuinfo)?.[1]?.trim() ?? "";
  const flags = createHash("sha256").update(field("flags")).digest("hex").slice(0, 12);
  return `${field("vendor_id")} ${field("cpu family")}/${field("model")}/${field("stepping")} flags ${flags}`;
}
