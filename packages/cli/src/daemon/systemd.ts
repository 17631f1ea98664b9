/** Calls systemctl, and finds the service of a data directory. */
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { AppError } from "@forkd/contract/wire";
import { defaultDataDir } from "@forkd/sdk/node";
import { systemctlMs } from "./deadlines.ts";
import { unitPath } from "./service-unit.ts";

/** The check of sd_booted(3). */
export function hasSystemd(): boolean {
  return existsSync("/run/systemd/system");
}

export function systemctl(args: readonly string[]): Promise<void> {
  return new Promise((done, reject) => {
    const child = spawn("systemctl", args, {
      stdio: ["ignore", "inherit", "inherit"],
      timeout: systemctlMs,
    });
    child.once("error", (cause) => reject(new AppError("host_not_ready", "Cannot run systemctl", { cause })));
    child.once("exit", (code) => {
      if (code === 0) done();
      else
        reject(new AppError("host_not_ready", `systemctl ${args.join(" ")} failed with exit code ${code}`));
    });
  });
}

/**
 * The systemctl arguments of the enabled service whose daemon uses this data directory, if there is one. A
 * daemon started beside it would lock its directory.
 */
export async function serviceOf(dataDir: string, env: NodeJS.ProcessEnv): Promise<string[] | undefined> {
  if (!hasSystemd()) return undefined;
  const user = process.getuid?.() !== 0;
  const path = unitPath("forkd.service", { user }, env);
  if (!existsSync(path)) return undefined;
  const given = /\bFORKD_DATA_DIR=(\S+)/.exec(readFileSync(path, "utf8"))?.[1];
  const { FORKD_DATA_DIR: _, ...others } = env;
  if (resolve(given ?? defaultDataDir(others)) !== dataDir) return undefined;
  const options = user ? ["--user"] : [];
  const isEnabled = await systemctl([...options, "is-enabled", "--quiet", "forkd.service"]).then(
    () => true,
    () => false,
  );
  return isEnabled ? options : undefined;
}
