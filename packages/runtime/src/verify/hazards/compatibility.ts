/** A snapshot is restored only where its CPU and device state are valid. */
import { AppError } from "@forkd/contract";
import { fail, pass, type Hazard } from "../hazard.ts";
import { differences, requireCompatible, type Host } from "../../snapshots/compatibility.ts";

/** Hosts that must be refused, each with one difference. */
function otherHosts(host: Host): Record<string, Host> {
  return {
    "another VMM": { ...host, engineName: `other-${host.engineName}` },
    "another version of the VMM": { ...host, engineVersion: `9${host.engineVersion}` },
    "another machine type": { ...host, machineType: `other-${host.machineType}` },
    "another accelerator": { ...host, accelerator: host.accelerator === "kvm" ? "tcg" : "kvm" },
    "another CPU": { ...host, cpu: `other ${host.cpu}` },
    "other devices": { ...host, devices: ["other", ...host.devices] },
    "another agent protocol": { ...host, agentProtocol: host.agentProtocol + 1 },
  };
}

export const compatibility: Hazard = {
  id: "compatibility",
  title: "CPU and QEMU of the host",
  policy: "A host with another CPU, accelerator, machine or QEMU version refuses the snapshot.",
  mechanism: "Every fork, resume and rewind compares the manifest with the host before it starts a VMM.",
  async check({ snapshot: { tag, manifest }, runtime: { host } }) {
    const here = differences(manifest, host);
    if (here.length > 0) return fail(`this host differs: ${here.join("; ")}`);
    const others = Object.entries(otherHosts(host));
    const accepted = others.filter(([, other]) => !isRefused(() => requireCompatible(tag, manifest, other)));
    if (accepted.length > 0)
      return fail(`a host with ${accepted.map(([what]) => what).join(", ")} would accept it`);
    return pass(`this host fits; ${others.length} hosts that differ in one point would be refused`);
  },
};

function isRefused(work: () => void): boolean {
  try {
    work();
    return false;
  } catch (error) {
    if (error instanceof AppError && error.code === "snapshot_incompatible") return true;
    throw error;
  }
}
