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

const tscTolerance = 0.001;

/** The CPU as a manifest names it. Under KVM the guest sees the CPU of the host. */
export function cpuName(model: string, accelerator: Accelerator, hostCpu: string): string {
  return accelerator === "kvm" ? `${model} on ${hostCpu}` : model;
}

function majorMinor(version: string): string {
  return version.split(".").slice(0, 2).join(".");
}

export function differences(manifest: Manifest, host: Host): string[] {
  const found: string[] = [];
  const compare = (what: string, saved: string, here: string) => {
    if (saved !== here) found.push(`${what}: snapshot has ${saved}, this host has ${here}`);
  };
  compare("engine", manifest.engine.name, host.engineName);
  compare(
    `${manifest.engine.name} version`,
    majorMinor(manifest.engine.version),
    majorMinor(host.engineVersion),
  );
  compare("machine type", manifest.machine.type, host.machineType);
  compare("accelerator", manifest.machine.accelerator, host.accelerator);
  compare("CPU model", manifest.machine.cpu, host.cpu);
  // A machine can have more devices than the saved one, at the end: the restored guest does not see them.
  const [saved, here] = [manifest.machine.devices, host.devices];
  if (saved.some((device, index) => device !== here[index]))
    compare("devices", saved.join(" "), here.join(" "));
  compare("agent protocol", String(manifest.agent_protocol), String(host.agentProtocol));
  const { tsc_khz: savedKhz } = manifest.machine;
  if (savedKhz > 0 && Math.abs(savedKhz - host.tscKhz) > savedKhz * tscTolerance) {
    found.push(
      `TSC frequency: snapshot counts ${savedKhz} kHz, this host ${host.tscKhz} kHz (the guest's clock would drift)`,
    );
  }
  return found;
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
