/** Routes that call one operation of the runtime with their input and nothing else to decide. */
import type { ParsedOf, RouteName } from "@forkd/contract";
import {
  attachEval,
  attachExec,
  branch,
  chmodFile,
  cleanup,
  closePort,
  compact,
  consoleLog,
  createContext,
  createWorkspace,
  deleteWorkspace,
  dropContext,
  execInput,
  execResize,
  execSignal,
  fork,
  gc,
  getNetwork,
  getPool,
  getSandbox,
  getWorkspace,
  interrupt,
  kill,
  killAll,
  listContexts,
  listEvals,
  listExecs,
  listFiles,
  listPresets,
  listSecrets,
  listServices,
  listTrust,
  makeDirectory,
  moveFile,
  networkLog,
  pause,
  ping,
  readFile,
  removeFile,
  removePreset,
  removeSecret,
  removeSnapshot,
  removeTrust,
  restartContext,
  resume,
  resumeWorkspace,
  rewind,
  searchHub,
  serviceLogs,
  setNetwork,
  setPool,
  setPreset,
  setSecret,
  setTimeouts,
  setTrust,
  snapshotArchive,
  signPushed,
  snapshotInfo,
  snapshotSbom,
  statFile,
  stats,
  suspendWorkspace,
  tree,
  unpackSnapshot,
  watchFiles,
  writeFile,
  type Runtime,
} from "@forkd/runtime";
import type { AnswerOf, ContextOf, Handlers } from "../http/handlers.ts";

type Operations = {
  readonly [N in RouteName]: (
    runtime: Runtime,
    input: ParsedOf<N>,
    context: ContextOf<N>,
  ) => AnswerOf<N> | Promise<AnswerOf<N>>;
};

export const operations = {
  cleanup,

  snapshotInfo,
  snapshotSbom,
  removeSnapshot,
  snapshotArchive,
  unpackSnapshot: (runtime, input, { content, ...context }) =>
    unpackSnapshot(runtime, { ...input, content }, context),
  compact,
  tree,
  gc,
  searchHub,
  signPushed,

  fork,
  killAll,
  getSandbox,
  kill,
  setTtl: setTimeouts,
  setTimeouts,
  ping,
  logs: consoleLog,
  branch,
  pause,
  resume,
  rewind,

  createWorkspace,
  getWorkspace,
  deleteWorkspace,
  suspendWorkspace,
  resumeWorkspace,

  listExecs,
  attachExec,
  execInput,
  execSignal,
  execResize,
  listServices,
  serviceLogs,
  interrupt,
  listContexts,
  createContext,
  restartContext,
  dropContext,
  listEvals,
  attachEval,

  readFile,
  writeFile: (runtime, input, { content, ...context }) => writeFile(runtime, { ...input, content }, context),
  listFiles,
  watchFiles,
  statFile,
  makeDirectory,
  moveFile,
  removeFile,
  chmodFile,

  getNetwork,
  setNetwork,
  networkLog,
  listPresets,
  setPreset,
  removePreset,
  listSecrets,
  setSecret,
  removeSecret,
  closePort,

  getPool,
  setPool,

  listTrust,
  setTrust,
  removeTrust,

  stats,
} satisfies Partial<Operations>;

type OperationName = keyof typeof operations;
/** Handlers of all other routes: one that is missing in both tables does not compile. */
export type DecidingHandlers = Omit<Handlers, OperationName>;

type AnyOperation = (runtime: Runtime, ...rest: never[]) => unknown;

/** The operations, each with its runtime. */
export function operationHandlers(runtime: Runtime): Pick<Handlers, OperationName> {
  const bound = Object.entries<AnyOperation>(operations).map(([name, operate]) => [
    name,
    (...rest: never[]) => operate(runtime, ...rest),
  ]);
  // Each takes and gives what its operation does.
  return Object.fromEntries(bound) as Pick<Handlers, OperationName>;
}
