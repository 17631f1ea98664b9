/**
 * The disk of a running machine: a chain of images of which only the top one is writable.
 *
 *   rootfs ← base … ← disk0 ← disk1 ← …        freeze(): the top becomes read-only below a new overlay
 *
 * No file ever has two writers: others open a frozen file only for reading.
 */
import { z } from "zod";
import { within, withDeadline } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { DiskLayer, DiskLimits, DiskSpec } from "../engine.ts";
import { baseNode, fileNode, overlayName, overlayNode } from "./args.ts";
import { DiskGrowth } from "./disk-growth.ts";
import type { QmpClient } from "./qmp.ts";

type Node = DiskLayer & { name: string };
type Execute = (command: string, args?: Record<string, unknown>) => Promise<unknown>;

const statsSchema = z.array(
  z.looseObject({
    qdev: z.string().optional(),
    stats: z.looseObject({
      wr_operations: z.number(),
      unmap_operations: z.number(),
      failed_wr_operations: z.number(),
      failed_unmap_operations: z.number(),
    }),
  }),
);
const jobName = "collapse";

const devicesSchema = z.array(
  z.looseObject({
    qdev: z.string().optional(),
    inserted: z.looseObject({ "node-name": z.string(), backing_file_depth: z.number() }).optional(),
  }),
);
const nodesSchema = z.array(
  z.looseObject({ "node-name": z.string(), drv: z.string(), image: z.looseObject({ filename: z.string() }) }),
);
const jobsSchema = z.array(z.looseObject({ device: z.string(), offset: z.number().optional() }));

export class QemuDisk {
  readonly #execute: Execute;
  readonly #qmp: QmpClient;
  #nodes: Node[];
  /** number of the next overlay */
  #overlays: number;
  #prepared: Node | undefined;
  /** number of writes when the top layer was created; undefined if the layer may contain data */
  #writesBefore: number | undefined;
  #growth: DiskGrowth | undefined;
  /** number of layers at the bottom that are not the machine's own */
  #bases: number;

  private constructor(execute: Execute, qmp: QmpClient, nodes: Node[], overlays: number) {
    this.#execute = execute;
    this.#qmp = qmp;
    this.#nodes = nodes;
    this.#overlays = overlays;
    this.#bases = nodes.filter(({ name }) => isBase(name)).length;
  }

  /** The disk of a new process, with the layers of its command line and an empty overlay. */
  static fresh(spec: DiskSpec, execute: Execute, qmp: QmpClient): QemuDisk {
    const base = [...spec.backing].reverse().map((layer, index) => ({ ...layer, name: baseNode(index) }));
    const top: Node = { path: spec.overlay, format: "qcow2", name: overlayName(0) };
    const disk = new QemuDisk(execute, qmp, [...base, top], 1);
    disk.#writesBefore = 0;
    return disk;
  }

  /** The disk as QEMU reports it, after cancelling a leftover job and removing nodes outside the chain. */
  static async attach(execute: Execute, qmp: QmpClient): Promise<QemuDisk> {
    await endJobs(execute, qmp);
    const devices = devicesSchema.parse(await execute("query-block"));
    const top = devices.find(({ qdev, inserted }) => qdev !== undefined && inserted)?.inserted;
    const all = layersOf(nodesSchema.parse(await execute("query-named-block-nodes", { flat: true })));
    const at = all.findIndex(({ name }) => name === top?.["node-name"]);
    const last = all[at];
    if (!top || !last) throw new AppError("engine_failed", "QEMU does not report the layers of its disk");
    // Layers are only added at the top or removed just below it, so the chain is the lowest ones and the top.
    const chain = [...all.slice(0, top.backing_file_depth), last];
    if (top.backing_file_depth > at)
      throw new AppError("engine_failed", "QEMU has a disk layer without a name");
    for (const { name } of all.toReversed())
      if (!chain.some((node) => node.name === name)) await execute("blockdev-del", { "node-name": name });
    const numbers = all.map(({ name }) => Number(/^disk(\d+)$/.exec(name)?.[1] ?? 0));
    return new QemuDisk(execute, qmp, chain, Math.max(...numbers) + 1);
  }

  get layers(): readonly DiskLayer[] {
    return this.#nodes.map(({ path, format }) => ({ path, format }));
  }

  /** Replaces all limits; `onExceeded` is called at most once. */
  async limit(limits: DiskLimits, onExceeded: (reason: string) => void): Promise<void> {
    const { readBps, writeBps, readIops, writeIops, growth } = limits;
    if ([readBps, writeBps, readIops, writeIops].some((each) => each !== undefined)) {
      await this.#execute("block_set_io_throttle", {
        id: (await this.#device()).qdev,
        bps: 0,
        bps_rd: readBps ?? 0,
        bps_wr: writeBps ?? 0,
        iops: 0,
        iops_rd: readIops ?? 0,
        iops_wr: writeIops ?? 0,
      });
    }
    this.#growth?.[Symbol.dispose]();
    this.#growth =
      growth && new DiskGrowth({ ...growth, execute: this.#execute, qmp: this.#qmp, onExceeded });
    await this.#watchGrowth();
  }

  async #watchGrowth(): Promise<void> {
    const own = this.#nodes.slice(this.#bases);
    await this.#growth?.watch(
      fileNode(this.#top().name),
      own.map(({ path }) => path),
    );
  }

  async prepare(make: () => Promise<string>): Promise<void> {
    if (this.#prepared) return;
    const path = await make();
    const name = overlayName(this.#overlays++);
    await this.#execute("blockdev-add", overlayNode(name, path, null));
    this.#prepared = { path, format: "qcow2", name };
  }

  async freeze(): Promise<readonly DiskLayer[]> {
    const writes = await this.#writes();
    // An empty layer adds nothing to the layers below it.
    if (writes === this.#writesBefore) return this.layers.slice(0, -1);
    const top = this.#top();
    const next = this.#prepared;
    if (!next) throw new AppError("internal", "Cannot freeze the disk: no overlay was prepared");
    await this.#execute("blockdev-snapshot", { node: top.name, overlay: next.name });
    this.#nodes.push(next);
    this.#prepared = undefined;
    this.#writesBefore = writes;
    await this.#watchGrowth();
    return this.layers.slice(0, -1);
  }

  async collapse(keep: number): Promise<readonly DiskLayer[]> {
    const top = this.#top();
    const base = this.#nodes[keep - 1];
    const between = this.#nodes.slice(keep, -1);
    if (!base || between.length === 0) return [];
    await this.#growth?.allow(this.#nodes.slice(keep, this.#bases).map(({ path }) => path));
    // No deadline: the job may take long, and #whileProgressing() watches it.
    const ended = this.#qmp.eventEver("BLOCK_JOB_COMPLETED", ({ device }) => device === jobName);
    ended.catch(() => undefined);
    const chain = { device: top.name, "base-node": base.name };
    // The image must not contain a path: the command line always gives the chain.
    await this.#execute("block-stream", { "job-id": jobName, ...chain, "backing-file": "" });
    const { error } = await this.#whileProgressing(ended);
    if (typeof error === "string")
      throw new AppError("engine_failed", `Cannot collapse the disk: ${error}`, { details: { error } });
    this.#nodes = [...this.#nodes.slice(0, keep), top];
    this.#bases = Math.min(this.#bases, keep);
    this.#writesBefore = undefined;
    await this.#watchGrowth();
    for (const { name } of between.reverse()) await this.#execute("blockdev-del", { "node-name": name });
    return between.map(({ path, format }) => ({ path, format }));
  }

  /** Waits for the end of the job as long as it makes progress; cancels one that does not. */
  async #whileProgressing<T>(ended: Promise<T>): Promise<T> {
    const { jobCheckMs, jobMs } = this.#qmp.deadlines;
    let offset = -1;
    let movedAt = performance.now();
    for (;;) {
      const end = await within(
        ended.then((value) => ({ value })),
        jobCheckMs,
      );
      if (end) return end.value;
      const job = (await jobs(this.#execute)).find(({ device }) => device === jobName);
      // The event of a job that has just ended may still be on its way.
      if (job && job.offset !== offset) movedAt = performance.now();
      offset = job?.offset ?? offset;
      if (performance.now() - movedAt < jobMs) continue;
      await endJobs(this.#execute, this.#qmp);
      throw new AppError("engine_failed", `Cannot collapse the disk: no progress within ${jobMs / 1000} s`);
    }
  }

  #top(): Node {
    const top = this.#nodes.at(-1);
    if (!top) throw new AppError("internal", "The machine has no disk");
    return top;
  }

  async #device(): Promise<z.output<typeof statsSchema>[number]> {
    const devices = statsSchema.parse(await this.#execute("query-blockstats"));
    const device = devices.find(({ qdev }) => qdev !== undefined);
    if (!device) throw new AppError("engine_failed", "QEMU does not report the writes to its disk");
    return device;
  }

  /** Number of guest requests that may have changed the disk; none is in progress during a pause. */
  async #writes(): Promise<number> {
    const { stats } = await this.#device();
    return (
      stats.wr_operations +
      stats.unmap_operations +
      stats.failed_wr_operations +
      stats.failed_unmap_operations
    );
  }
}

function isBase(name: string): boolean {
  return /^base\d+$/.test(name);
}

async function jobs(execute: Execute): Promise<z.output<typeof jobsSchema>> {
  return jobsSchema.parse(await execute("query-block-jobs"));
}

async function endJobs(execute: Execute, qmp: QmpClient): Promise<void> {
  const endings = ["BLOCK_JOB_CANCELLED", "BLOCK_JOB_COMPLETED"];
  // No deadline: it is set below, and only if there is a job.
  const ended = qmp.eventEver(endings, ({ device }) => device === jobName);
  ended.catch(() => undefined);
  if (!(await jobs(execute)).some(({ device }) => device === jobName)) return;
  try {
    await execute("block-job-cancel", { device: jobName });
  } catch (error) {
    // The job may have completed since the query; then the event has arrived.
    if (!(error instanceof AppError) || error.details["qmp_class"] !== "DeviceNotActive") throw error;
  }
  const { jobMs } = qmp.deadlines;
  await withDeadline(ended, jobMs, () => {
    return new AppError("engine_failed", `QEMU did not end its job on the disk within ${jobMs / 1000} s`);
  });
}

/** The nodes that are layers, bottom first. */
function layersOf(nodes: z.output<typeof nodesSchema>): Node[] {
  const byName = new Map(nodes.map((node) => [node["node-name"], node]));
  const layers = nodes.flatMap((node): (Node & { order: number })[] => {
    const [, kind, number] = /^(base|disk)(\d+)$/.exec(node["node-name"]) ?? [];
    const path = byName.get(fileNode(node["node-name"]))?.image.filename;
    if (kind === undefined || path === undefined) return [];
    const format = node.drv === "raw" ? "raw" : "qcow2";
    const order = Number(number) + (kind === "base" ? 0 : 1e6);
    return [{ path, format, name: node["node-name"], order }];
  });
  return layers.sort((a, b) => a.order - b.order).map(({ path, format, name }) => ({ path, format, name }));
}
