export { AsyncQueue, Wakeup } from "./async-queue.ts";
export { Scope } from "./scope.ts";
export { mapPool, Semaphore } from "./pool.ts";
export { FairSemaphore } from "./fair-semaphore.ts";
export { Mutex } from "./mutex.ts";
export { withDeadline, within } from "./deadline.ts";
export {
  fsyncPath,
  giveName,
  isErrno,
  readJson,
  removeTree,
  writeFileAtomic,
  writeFileBeside,
} from "./atomic-file.ts";
export { openOwnFile, readOwnFile, UnsafeFile } from "./own-file.ts";
export { closeInheritedDescriptors } from "./inherited-descriptors.ts";
export { LogFile } from "./log-file.ts";
export { createLogger, nullLogger, type Logger } from "./logger.ts";
export { CachedValue } from "./cached-value.ts";
export { drained } from "./drained.ts";
export { createDeferred, type Deferred } from "./deferred.ts";
export { roundMs } from "./round-ms.ts";
export { checkJson, checkJsonInTurns, findJsonFault } from "./json-check.ts";
export { JsonText, stringifyJson } from "./json-text.ts";
export { LineSplitter } from "./line-splitter.ts";
export { longTimer, maxTimerMs } from "./long-timer.ts";
export { LruMap } from "./lru-map.ts";
export {
  decodeQcow2Header,
  encodeQcow2Header,
  qcow2ClusterBytes,
  qcow2HeaderBytes,
  qcow2L1Entries,
  qcow2TableEntries,
} from "./qcow2.ts";
export { ProxyChoice, proxiesOf, type UpstreamProxy } from "./proxy-choice.ts";
export { ProgramFailure, runProgram, type ProgramResult } from "./run-program.ts";
export { SharedTask, SingleFlight } from "./single-flight.ts";
export { asBackground, asForeground, asOrdinary, prioritise, type Priority } from "./priority.ts";
export { nativeTool } from "./native-tool.ts";
export { copySparse, dataRanges } from "./sparse-file.ts";
export { Trace } from "./trace.ts";
export { probeSocket } from "./unix-socket.ts";
export { nextTurn, sortInTurns } from "./turns.ts";
export { Counter, exposition, Gauge, Histogram, type Metric } from "./metrics.ts";
