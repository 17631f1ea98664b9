/** What a guest sees of the host's CPU when it runs on it directly. */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

/** A host does not change its CPU, and on one with many of them the kernel takes milliseconds to describe them. */
let known: string | undefined;

/** Vendor, family, model, stepping and a digest of the feature flags: two hosts with the same text run the same guests. */
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
