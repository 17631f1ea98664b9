/** Snapshots: what sandboxes are forked from. */
import { AppError } from "@forkd/contract/wire";
import { s } from "../schema.ts";
import { safeValue } from "../results/safe-text.ts";
import { snapshotAnswer, tag } from "./fields.ts";
import { creates, listAnswer, reads, replaces, tool, type Answer } from "./tool.ts";

const hostPath = s.string().min(1).max(4096).regex(/^\//, "must be an absolute path on the daemon's host");

export const listSnapshots = tool("list_snapshots", {
  title: "List snapshots",
  description:
    "List the snapshots that sandboxes can be forked from: warmed virtual machines, each with a tag. " +
    'Only those with status "ready" and bootable true can be forked.',
  input: s.object({
    branched_from: s.string().optional().describe("Only branches of this sandbox"),
  }),
  output: s.object({ result: s.array(snapshotAnswer) }),
  annotations: reads,
  run: async ({ branched_from }, { forkd, signal }) =>
    listAnswer(
      safeValue(await forkd.call("listSnapshots", { branched_from, limit: 1000 }, { signal })) as unknown[],
    ),
});

export const getSnapshot = tool("get_snapshot", {
  title: "Describe a snapshot",
  description: "Describe one snapshot: its parents, what depends on it, its sizes and its status.",
  input: s.object({ tag: tag.describe("Tag of the snapshot") }),
  output: snapshotAnswer,
  annotations: reads,
  run: async ({ tag: name }, { forkd, signal }) => {
    const { manifest: _, ...info } = await forkd.call("snapshotInfo", { tag: name }, { signal });
    return object(info);
  },
});

export const createSnapshot = tool("create_snapshot", {
  title: "Build a snapshot",
  description:
    "Build a snapshot: boot a virtual machine from a recipe or a root file system on the daemon's host, and save it when it is ready. " +
    "It takes seconds to minutes and reports its progress. Give either recipe or rootfs. The caller needs the scope admin. " +
    "The snapshot stays until delete_snapshot removes it.",
  input: s.object({
    tag: tag.describe("Tag of the new snapshot"),
    kernel: hostPath.optional().describe("Linux kernel image on the daemon's host; default: Debian's"),
    rootfs: hostPath.optional().describe("Ext4 image, tar archive or directory on the daemon's host"),
    recipe: hostPath.optional().describe("Directory of a recipe on the daemon's host"),
    rw: s
      .boolean()
      .optional()
      .describe("Accepted for compatibility: every sandbox has its own writable disk"),
    tap: s.string().optional().describe("Not supported: leave it out"),
    boot_wait_secs: s.int().min(1).max(600).optional().describe("Longest wait for the guest"),
    memory_mib: s.int().min(80).max(65_536).optional().describe("Memory of the guest"),
    vcpus: s.int().min(1).max(64).optional().describe("CPUs of the guest"),
    force: s.boolean().optional().describe("Replace a snapshot that has this tag"),
  }),
  output: snapshotAnswer,
  annotations: { ...creates, destructiveHint: true },
  run: async ({ tap, ...input }, { forkd, guest, signal, progress }) => {
    if (tap !== undefined)
      throw new AppError("invalid_request", 'Invalid argument "tap": it is not supported: leave it out', {
        details: { field: "tap" },
      });
    const { boot_wait_secs: wait, memory_mib: memoryMib, ...request } = input;
    const bootWaitMs = wait === undefined ? undefined : wait * 1000;
    const snapshot = await guest.buildSnapshot(
      forkd,
      { ...request, bootWaitMs, memoryMib },
      {
        signal,
        progress: (step, message) => progress.say(`${step}: ${message}`),
      },
    );
    return object(snapshot);
  },
});

export const deleteSnapshot = tool("delete_snapshot", {
  title: "Delete a snapshot",
  description:
    "Delete a snapshot from disk. Its sandboxes must be killed first. With cascade, also delete the snapshots that are layers over it.",
  input: s.object({
    tag: tag.describe("Tag of the snapshot"),
    cascade: s.boolean().optional().describe("Also delete the snapshots that are layers over it"),
    dry_run: s.boolean().optional().describe("Only report what would be deleted"),
  }),
  output: s.looseObject({ removed: s.array(s.object({ tag: s.string() })), dry_run: s.boolean() }),
  annotations: replaces,
  run: async ({ tag: name, cascade, dry_run }, { forkd, signal }) => {
    const request = { tag: name, cascade: flag(cascade), dry_run: flag(dry_run) };
    return object(await forkd.call("removeSnapshot", request, { signal }));
  },
});

function flag(value: boolean | undefined): "true" | undefined {
  return value === true ? "true" : undefined;
}

function object(value: object): Answer {
  return { structured: safeValue(value) as Record<string, unknown> };
}
