/** This host, in the terms that manifests use. */
import type { Accelerator } from "@forkd/contract";
import {
  agentProtocolVersion,
  cpuModel,
  devices,
  hostCpuIdentity,
  machineType,
  type Engine,
} from "@forkd/machine";
import { cpuName, type Host } from "./compatibility.ts";

export function thisHost(parts: {
  engine: Pick<Engine, "name" | "version">;
  accelerator: Accelerator;
  tscKhz: number;
}): Host {
  const { engine, accelerator, tscKhz } = parts;
  return {
    engineName: engine.name,
    engineVersion: engine.version,
    accelerator,
    machineType,
    cpu: cpuName(cpuModel(accelerator), accelerator, hostCpuIdentity()),
    devices,
    agentProtocol: agentProtocolVersion,
    tscKhz,
  };
}
