/** Checks of this host that need no daemon: the part of `doctor` that works when it cannot start. */
import { constants } from "node:fs";
import { access, open, statfs } from "node:fs/promises";
import { totalmem } from "node:os";
import { delimiter, dirname, join } from "node:path";
import type { Check, DoctorReport } from "@forkd/contract";
import { defaultDataDir, defaultRuntimeDir } from "@forkd/sdk/node";
import { formatBytes } from "./table.ts";

const gib = 1024 ** 3;
const kvmModules = ["kvm_intel", "kvm_amd"];

export async function checkHost(env: NodeJS.ProcessEnv): Promise<DoctorReport> {
  const kvm = await checkKvm();
  const checks = [
    checkPlatform(),
    kvm,
    await checkProgram(env, process.arch === "arm64" ? "qemu-system-aarch64" : "qemu-system-x86_64"),
    checkMemory(),
    ...(await checkDirectory("data directory", defaultDataDir(env), { wantedBytes: 5 * gib })),
    ...(await checkDirectory("runtime directory", defaultRuntimeDir(env))),
    {
      name: "daemon",
      outcome: "warn",
      detail: "not running, so only the host was checked",
      remedy: "forkd up",
    } as const,
  ];
  const ok = checks.every(({ outcome }) => outcome !== "fail");
  return { ok, accelerator: kvm.outcome === "ok" ? "kvm" : "tcg", checks };
}

function checkPlatform(): Check {
  const detail = `${process.platform} ${process.arch}, Node ${process.versions.node}`;
  if (process.platform === "linux") return { name: "platform", outcome: "ok", detail };
  return { name: "platform", outcome: "fail", detail, remedy: "Run forkd on Linux." };
}

async function checkKvm(): Promise<Check> {
  const modules = await Promise.all(
    kvmModules.map((name) => isAllowed(`/sys/module/${name}`, constants.F_OK)),
  );
  if (process.arch === "x64" && !modules.includes(true)) {
    return withoutKvm(
      `none of ${kvmModules.join(", ")} is loaded`,
      "Use a host with hardware or nested virtualization.",
    );
  }
  try {
    await (await open("/dev/kvm", "r+")).close();
    return { name: "kvm", outcome: "ok", detail: "/dev/kvm opens" };
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : String(error);
    const remedy = code === "EACCES" ? "Add yourself to the group kvm." : "Use a host with /dev/kvm.";
    return withoutKvm(`/dev/kvm: ${code}`, remedy);
  }
}

function withoutKvm(why: string, remedy: string): Check {
  return { name: "kvm", outcome: "warn", detail: `${why}; guests are emulated, which is slower`, remedy };
}

async function checkProgram(env: NodeJS.ProcessEnv, name: string): Promise<Check> {
  for (const dir of (env["PATH"] ?? "").split(delimiter)) {
    const path = join(dir, name);
    if (await isAllowed(path, constants.X_OK)) return { name: "qemu", outcome: "ok", detail: path };
  }
  return {
    name: "qemu",
    outcome: "fail",
    detail: `${name} is not on PATH`,
    remedy: "apt install qemu-system-x86",
  };
}

function checkMemory(): Check {
  const detail = formatBytes(totalmem());
  if (totalmem() >= gib) return { name: "memory", outcome: "ok", detail };
  return { name: "memory", outcome: "warn", detail, remedy: "Use a host with at least 1 GiB." };
}

async function checkDirectory(
  name: string,
  path: string,
  options: { wantedBytes?: number } = {},
): Promise<Check[]> {
  const existing = await nearestExisting(path);
  if (!(await isAllowed(existing, constants.W_OK))) {
    return [
      {
        name,
        outcome: "fail",
        detail: `${existing} is not writable`,
        remedy: "Set FORKD_DATA_DIR or FORKD_RUNTIME_DIR.",
      },
    ];
  }
  const found: Check = { name, outcome: "ok", detail: path };
  if (options.wantedBytes === undefined) return [found];
  const { bavail, bsize } = await statfs(existing);
  const free = bavail * bsize;
  const detail = `${formatBytes(free)} free`;
  if (free >= options.wantedBytes) return [found, { name: "disk space", outcome: "ok", detail }];
  const remedy = `Free up to ${formatBytes(options.wantedBytes)}, or set FORKD_DATA_DIR to a larger disk.`;
  return [found, { name: "disk space", outcome: free >= gib ? "warn" : "fail", detail, remedy }];
}

async function nearestExisting(path: string): Promise<string> {
  return (await isAllowed(path, constants.F_OK)) || dirname(path) === path
    ? path
    : nearestExisting(dirname(path));
}

function isAllowed(path: string, mode: number): Promise<boolean> {
  return access(path, mode).then(
    () => true,
    () => false,
  );
}
