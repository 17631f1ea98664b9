export { defaultRuntimeConfig, runtimeConfig, runtimeSettings } from "./config.ts";
export {
  count,
  defaultsOf,
  hostFacts,
  path,
  runtimeSetting,
  type RuntimeSetting,
  setting,
  type Setting,
  type SettingTable,
} from "./setting.ts";
export type { Caller, Context } from "./context.ts";
export { openRuntime } from "./open-runtime.ts";
export type { Runtime } from "./runtime.ts";
export { closeSandboxes, saveWorkspaces } from "./sandbox/shutdown.ts";
export { forkdVersion } from "./version.ts";
export { hostBootId, identify } from "@forkd/machine";
export { branch } from "./operations/branch.ts";
export { createSnapshot } from "./operations/create-snapshot.ts";
export { attachEval, listEvals } from "./operations/attach-eval.ts";
export { createContext, dropContext, listContexts, restartContext } from "./operations/contexts.ts";
export { evaluate, interrupt, streamEval } from "./operations/eval.ts";
export {
  attachExec,
  exec,
  execInput,
  execResize,
  execSignal,
  listExecs,
  startExec,
  streamExec,
} from "./operations/exec.ts";
export { listServices, serviceLogs } from "./operations/services.ts";
export {
  chmodFile,
  listFiles,
  watchFiles,
  makeDirectory,
  moveFile,
  readFile,
  removeFile,
  statFile,
  writeFile,
} from "./operations/files.ts";
export { closePort, enterPort, findPort, listPorts, openPort, type EnteredPort } from "./operations/ports.ts";
export { fork } from "./operations/fork.ts";
export {
  getNetwork,
  listPresets,
  networkLog,
  removePreset,
  setNetwork,
  setPreset,
} from "./operations/network.ts";
export { getPool, setPool } from "./operations/pool.ts";
export { listSecrets, removeSecret, setSecret } from "./operations/secrets.ts";
export { listTrust, removeTrust, setTrust } from "./operations/trust.ts";
export { pause } from "./operations/pause.ts";
export { resume, rewind } from "./operations/resume.ts";
export { setTimeouts } from "./operations/timeouts.ts";
export { consoleLog } from "./operations/console.ts";
export { getSandbox, kill, killAll, listSandboxes, ping } from "./operations/sandboxes.ts";
export { packSnapshot, snapshotArchive, unpackSnapshot } from "./operations/archive.ts";
export { compact } from "./operations/compact.ts";
export { findSnapshots, listSnapshots, snapshotInfo, tree } from "./operations/list-snapshots.ts";
export { snapshotSbom } from "./operations/sbom.ts";
export { removeSnapshot } from "./operations/remove-snapshot.ts";
export { pull, push, searchHub, signPushed } from "./operations/hub.ts";
export { verify } from "./operations/verify.ts";
export { cleanup, gc } from "./operations/gc.ts";
export { doctor } from "./operations/doctor.ts";
export { status } from "./operations/status.ts";
export {
  createWorkspace,
  deleteWorkspace,
  getWorkspace,
  listWorkspaces,
  resumeWorkspace,
  suspendWorkspace,
} from "./operations/workspaces.ts";
export { idleFindings } from "./doctor/findings.ts";
export { fail, ok, toCheck, warn, type Finding } from "./doctor/finding.ts";
export { EventBus, type Listener } from "./observe/events.ts";
export { listen, metricsText, stats } from "./operations/observe.ts";
