/** Whether a snapshot can be restored on this host, and what differs. Pure. */
import { AppError, type Accelerator } from "@forkd/contract";
import type { Manifest } from "@forkd/store";

export type Host = {
  engineName: string;
  engineVersion: string;
  accelerator: Accelerator;
  machineType: string;
  cpu: string;
  devices: readonly string[];
  agentProtocol: number;
  tscKhz: number;
};

/** One fact that a restore depends on, and that differs. */
export type Difference = {
  readonly fact:
    | "engine"
    | "engine_version"
    | "machine_type"
    | "accelerator"
    | "cpu"
    | "devices"
    | "agent_protocol"
    | "tsc";
  readonly snapshot: string;
  readonly host: string;
  /** for a person */
  readonly text: string;
};

const tscTolerance = 0.001;

/** The CPU as a manifest names it. Under KVM the guest sees the CPU of the host. */
export function cpuName(model: string, accelerator: Accelerator, hostCpu: string): string {
  return accelerator === "kvm" ? `${model} on ${hostCpu}` : model;
}

function majorMinor(version: string): string {
  return version.split(".").slice(0, 2).join(".");
}

export function findDifferences(manifest: Manifest, host: Host): Difference[] {
  const found: Difference[] = [];
  const compare = (fact: Difference["fact"], what: string, saved: string, here: string) => {
    const text = `${what}: snapshot has ${saved}, this host has ${here}`;
    if (saved !== here) found.push({ fact, snapshot: saved, host: here, text });
  };
  const { engine, machine } = manifest;
  compare("engine", "engine", engine.name, host.engineName);
  const [savedVersion, hereVersion] = [majorMinor(engine.version), majorMinor(host.engineVersion)];
  compare("engine_version", `${engine.name} version`, savedVersion, hereVersion);
  compare("machine_type", "machine type", machine.type, host.machineType);
  compare("accelerator", "accelerator", machine.accelerator, host.accelerator);
  compare("cpu", "CPU model", machine.cpu, host.cpu);
  // A machine can have more devices than the saved one, at the end: the restored guest does not see them.
  const [saved, here] = [machine.devices, host.devices];
  if (saved.some((device, index) => device !== here[index]))
    compare("devices", "devices", saved.join(" "), here.join(" "));
  compare("agent_protocol", "agent protocol", String(manifest.agent_protocol), String(host.agentProtocol));
  const { tsc_khz: savedKhz } = machine;
  if (savedKhz > 0 && Math.abs(savedKhz - host.tscKhz) > savedKhz * tscTolerance) {
    const [snapshot, own] = [`${savedKhz} kHz`, `${host.tscKhz} kHz`];
    const text = `TSC frequency: snapshot counts ${snapshot}, this host ${own} (the guest's clock would drift)`;
    found.push({ fact: "tsc", snapshot, host: own, text });
  }
  return found;
}

export function differences(manifest: Manifest, host: Host): string[] {
  return findDifferences(manifest, host).map(({ text }) => text);
}

export function requireCompatible(tag: string, manifest: Manifest, host: Host): void {
  const found = differences(manifest, host);
  if (found.length === 0) return;
  throw new AppError(
    "snapshot_incompatible",
    `Cannot restore snapshot "${tag}" on this host: ${found.join("; ")}`,
    { details: { tag, differences: found }, remedy: { action: "build_again", tag } },
  );
}
