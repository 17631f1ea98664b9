/** What is around a VMM on this host, whether sandboxes can have a network, and whether writes can be tracked. */
import { readFile } from "node:fs/promises";
import { Launcher, type JailFacts } from "@forkd/machine";
import type { RuntimeConfig } from "../config.ts";
import { fail, ok, warn, type Finding } from "./finding.ts";

export async function isolationFindings(config: RuntimeConfig): Promise<Finding[]> {
  const { facts, noTracking } = await Launcher.open(config.qemuPath, config.jail);
  const pids = Number(await readFile("/proc/sys/kernel/pid_max", "latin1"));
  return [jail(facts, config), ...uids(facts, config, pids), network(facts), tracking(noTracking)];
}

/** The uid of a machine follows from its process id. Pure. */
export function uids(
  { variant }: Pick<JailFacts, "variant">,
  { jail: { uids: range } }: Pick<RuntimeConfig, "jail">,
  pids: number,
): Finding[] {
  if (variant !== "root" || range.count >= pids) return [];
  const detail = `jail_uids has ${range.count} uids for ${pids} process ids: two machines may share one`;
  return [
    warn("jail uids", detail, { action: "change_setting", setting: "jail_uids", to: "a larger range" }),
  ];
}

const variants = {
  root: "each VMM has its own uid, namespaces, root directory and system call filter",
  user: "each VMM has its own namespaces, root directory and system call filter, but the uid of the daemon",
  none: "VMMs have a system call filter, and the files of the daemon's user where Landlock does not hide them",
} as const;

/** Pure. */
export function jail({ variant, missing }: JailFacts, config: Pick<RuntimeConfig, "jail">): Finding {
  const detail = [variants[variant], ...missing].join("; ");
  if (variant === "root" && missing.length === 0) return ok("jail", detail);
  if (variant === "none" && config.jail.mode === "require")
    return fail("jail", detail, { action: "change_setting", setting: "jail", to: "auto" });
  if (variant === "none")
    return warn("jail", detail, "Run the daemon as root, or allow unprivileged user namespaces.");
  return warn("jail", detail, "Run the daemon as root for the strongest isolation.");
}

/** Pure. */
export function network({ netdev, missing }: JailFacts): Finding {
  const slow = "sandboxes are connected by QEMU's own stack, which is slower than a tap device";
  if (netdev === "none")
    return warn(
      "network",
      `sandboxes have none: ${missing.join("; ")}`,
      "Allow a jail, and use a kernel with CONFIG_NFT_TPROXY.",
    );
  if (netdev === "slirp")
    return warn("network", slow, "Let the daemon's user open /dev/net/tun, or run the daemon as root.");
  return ok("network", "each machine has its own namespace with a tap device and no way out but the proxy");
}

/** Pure: `problem` says why the writes of machines cannot be tracked. */
export function tracking(problem: string | undefined): Finding {
  const name = "write tracking";
  if (problem === undefined) return ok(name, "branches copy memory while the sandbox runs");
  return warn(
    name,
    `branches copy all changed memory while the sandbox is paused: ${problem}`,
    "Use Linux 6.8.10 or later, and let the daemon's user open /dev/userfaultfd.",
  );
}
