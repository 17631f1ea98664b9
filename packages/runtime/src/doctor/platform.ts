/** The only platform whose programs forkd has: machines, helpers and guests are compiled for it. */
import { advice, AppError } from "@forkd/contract";
import { fail, ok, type Finding } from "./finding.ts";

const remedy = "Use a daemon on a host with Linux on x86_64; clients run anywhere.";

export function platformFinding(): Finding {
  const detail = `${process.platform} ${process.arch}, Node ${process.versions.node}`;
  return isSupported() ? ok("platform", detail) : fail("platform", detail, remedy);
}

/** Throws host_not_ready. On other platforms the helpers would fail to start without a clear reason. */
export function requirePlatform(): void {
  if (isSupported()) return;
  const found = `${process.platform} ${process.arch}`;
  throw new AppError("host_not_ready", `Cannot run machines on ${found}: forkd needs Linux on x86_64`, {
    details: { platform: found },
    remedy: advice(remedy),
  });
}

function isSupported(): boolean {
  return process.platform === "linux" && process.arch === "x64";
}
