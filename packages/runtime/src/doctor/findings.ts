/** The checks in their order, with and without an open runtime. */
import type { RuntimeConfig } from "../config.ts";
import { bootFindings, lookedAt, type BootOptions } from "./boot.ts";
import { sandboxFinding, snapshotFinding } from "./data.ts";
import { guarded, type Finding } from "./finding.ts";
import { hostFindings } from "./host.ts";
import { isolationFindings } from "./isolation.ts";
import { platformFinding } from "./platform.ts";
import { programFindings } from "./programs.ts";
import { storageFindings } from "./storage.ts";

/** The host, its programs and its directories. */
export async function commonFindings(config: RuntimeConfig): Promise<Finding[]> {
  return [
    platformFinding(),
    ...(await guarded("host", () => hostFindings(config))),
    ...(await guarded("programs", () => programFindings(config))),
    ...(await guarded("isolation", () => isolationFindings(config))),
    ...(await guarded("directories", () => storageFindings(config))),
    ...(await guarded("snapshots", async () => [await snapshotFinding(config)])),
  ];
}

/** Starts guests if `boot`. */
export async function acceleratorFindings(options: BootOptions, boot: boolean): Promise<Finding[]> {
  return guarded("accelerators", async () => (boot ? bootFindings(options) : lookedAt(options)));
}

/** For a host on which no daemon runs. */
export async function idleFindings(config: RuntimeConfig, boot: boolean): Promise<Finding[]> {
  return [
    ...(await commonFindings(config)),
    ...(await guarded("sandboxes", async () => [await sandboxFinding(config)])),
    ...(await acceleratorFindings({ config }, boot)),
  ];
}
