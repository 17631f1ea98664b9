export { AsyncQueue, Wakeup } from "./async-queue.ts";
export { Scope, type Undo } from "./scope.ts";
export { mapPool } from "./pool.ts";
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
export { LogFile, type LogFileOptions } from "./log-file.ts";
export { createLogger, nullLogger, redact, type Logger } from "./logger.ts";
export { runCommand, type CommandFailure, type CommandResult } from "./run-command.ts";
export { asOrdinary, prioritise, type Priority } from "./priority.ts";
export { nativeTool } from "./native-tool.ts";
export { copySparse, dataRanges } from "./sparse-file.ts";
export { Counter, exposition, Gauge, Histogram, type Metric } from "./metrics.ts";
