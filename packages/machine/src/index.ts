export { guestDeadlinesOf, vmmDeadlinesOf, type GuestDeadlines, type VmmDeadlines } from "./deadlines.ts";
export type {
  AttachSpec,
  BootSpec,
  DiskLayer,
  DiskSpec,
  DiskLimits,
  Engine,
  ExitReason,
  Machine,
  MachineShape,
  PageCapture,
  PausedMachine,
  PreparedMachine,
  RestoreSpec,
} from "./engine/engine.ts";
export { lastWords, tailOf } from "./engine/process.ts";
export { QemuEngine } from "./engine/qemu/driver.ts";
export {
  cpuModel,
  devices,
  escapeComma,
  kernelCommandLine,
  machineType,
  restoreArgs,
  shapeOf,
} from "./engine/qemu/args.ts";
export { createOverlay } from "./disk/overlay.ts";
export { chooseAccelerator, kvmObstacle, type AcceleratorChoice } from "./host/accelerator.ts";
export { Cgroups, groupNameOf } from "./host/cgroup/cgroups.ts";
export type { Group, GroupLimits } from "./host/cgroup/group.ts";
export { findPositions } from "./host/cgroup/hierarchies.ts";
export { hostCpuIdentity } from "./host/cpu.ts";
export { measureTscKhz } from "./host/tsc.ts";
export {
  commandLine,
  cpuSeconds,
  endProcess,
  hostBootId,
  identify,
  isAlive,
  memoryUse,
  type MemoryUse,
  type ProcessId,
} from "./host/procfs.ts";
export type { JailFacts, NetworkDevice } from "./jail/facts.ts";
export { Launcher } from "./jail/launcher.ts";
export { AgentClient } from "./agent/client.ts";
export { GuestProgress, whileAnswering } from "./agent/progress.ts";
export { signalName } from "./agent/kernel/errors.ts";
export { AgentProcess } from "./agent/process/process.ts";
export type { AgentExit, AgentOutput } from "./agent/wire/replies.ts";
export { startFlag, type StartSpec } from "./agent/wire/requests.ts";
export { protocolVersion as agentProtocolVersion } from "./agent/wire/frames.ts";
export { KernelClient } from "./agent/kernel/client.ts";
export type { EvalOutcome } from "./agent/kernel/eval.ts";
export type { EvalReader } from "./agent/kernel/carried.ts";
export type { KernelDisplay } from "./agent/kernel/display.ts";
export {
  changeMode,
  listFiles,
  makeDirectory,
  moveFile,
  readFile,
  removeFile,
  statFile,
  writeFile,
} from "./agent/files.ts";
export { watchFiles, type FileWatch } from "./agent/watch.ts";
export { connectTcp } from "./agent/tcp.ts";
