/**
 * The parent: a machine booted from images, warmed, and saved into a draft.
 *
 * It is killed while it is paused: its memory file is mapped shared, and one instruction after the device
 * state was saved would make memory and devices two different instants.
 */
import type { HazardId, Language } from "@forkd/contract";
import { agentProtocolVersion, type DiskLayer, type MachineShape } from "@forkd/machine";
import type { Draft, ManifestFacts } from "@forkd/store";
import { shortenDisk } from "../capture/disk-chain.ts";
import type { Runtime } from "../runtime.ts";
import { forkdVersion } from "../version.ts";
import { bootParent, type BootPlan } from "./boot-parent.ts";
import { recordKernel, type WarmKernel } from "./warm-kernel.ts";
import { warm, type Progress, type WarmPlan } from "./warm-parent.ts";

/** What is booted, and what is done in it. */
export type BakePlan = BootPlan &
  WarmPlan & {
    rootfs: { path: string; digest: string; bytes: number };
    kernel: { digest: string; version: string };
    initramfs: { digest: string };
    /** variables by which programs trust the certificates of the installation */
    trust: Readonly<Record<string, string>>;
    recipe?: { name: string; digest: string } | undefined;
    /** container image that the root file system was made from */
    image?: ManifestFacts["image"];
    /** hazards whose check the snapshot requires */
    require?: readonly HazardId[] | undefined;
    /** of the children; the parent has none */
    network?: ManifestFacts["network"];
  };

/** The draft has the root file system. */
export async function bake(
  runtime: Runtime,
  draft: Draft,
  plan: BakePlan,
  {
    layers = 0,
    signal,
    onProgress,
  }: {
    /** number of disk layers that the draft has; default: none */
    layers?: number;
    signal?: AbortSignal | undefined;
    onProgress: Progress;
  },
): Promise<ManifestFacts> {
  const files = {
    memory: draft.path("memory"),
    disk: { overlay: draft.diskPath(layers), backing: backingOf(draft, layers), bytes: plan.rootfs.bytes },
  };
  await using parent = await bootParent(runtime, files, plan, { signal, onProgress });
  const { machine, agent, shape, commandLine } = parent;
  const kernels = new Map<Language, WarmKernel>();
  await warm({ config: runtime.config, machine, agent, kernels, plan, onProgress });
  const records = [...kernels.values()].map(recordKernel);
  const paused = await machine.pause();
  await paused.saveDevices(draft.path("devices"));
  await machine[Symbol.asyncDispose]();
  await shortenDisk(draft, layers + 1, signal);
  return manifestFacts(runtime, plan, { shape, commandLine, kernels: records });
}

/** The root file system and the disk layers of a draft, nearest first. */
export function backingOf(draft: Draft, layers: number): DiskLayer[] {
  const disks = Array.from({ length: layers }, (_, index) => draft.diskPath(layers - 1 - index));
  return [
    ...disks.map((path): DiskLayer => ({ path, format: "qcow2" })),
    { path: draft.path("rootfs"), format: "raw" },
  ];
}

function manifestFacts(
  { engine, host, accelerator, tscKhz }: Pick<Runtime, "accelerator" | "engine" | "host" | "tscKhz">,
  plan: BakePlan,
  parent: { shape: MachineShape; commandLine: string; kernels: ManifestFacts["kernels"] },
): ManifestFacts {
  return {
    forkd_version: forkdVersion,
    created_at_unix: Math.floor(Date.now() / 1000),
    agent_protocol: agentProtocolVersion,
    engine: { name: engine.name, version: engine.version },
    machine: {
      type: parent.shape.machineType,
      cpu: host.cpu,
      accelerator: accelerator.accelerator,
      vcpus: plan.vcpus,
      memory_mib: plan.memoryMib,
      devices: [...parent.shape.devices],
      tsc_khz: tscKhz,
    },
    kernel: { digest: plan.kernel.digest, version: plan.kernel.version, command_line: parent.commandLine },
    initramfs: { digest: plan.initramfs.digest },
    rootfs: { digest: plan.rootfs.digest },
    ...(plan.recipe && { recipe: plan.recipe }),
    ...(plan.image && { image: plan.image }),
    env: plan.env,
    ...(plan.defaults && { defaults: plan.defaults }),
    ...(plan.require && { require: [...plan.require] }),
    ...(plan.network && { network: plan.network }),
    kernels: parent.kernels,
    origin: { kind: "build" },
  };
}
