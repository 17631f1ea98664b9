export { AppError, errorCodes } from "@forkd/contract/wire";
export type {
  BuildEvent,
  CleanupReport,
  DoctorReport,
  ErrorCode,
  EvalEvent,
  EvalResult,
  ExecEvent,
  ExecInfo,
  ExecResult,
  FileEntry,
  Language,
  SandboxInfo,
  SnapshotDetail,
  SnapshotInfo,
  Status,
} from "@forkd/contract";
export { Forkd, Sandboxes, Snapshots } from "./forkd.ts";
export type { ForkOptions, Progress } from "./forkd.ts";
export { Sandbox } from "./sandbox.ts";
export type { EvalOptions } from "./sandbox.ts";
export { Commands } from "./commands.ts";
export type { CommandOptions, RunOptions, StartOptions } from "./commands.ts";
export { CommandHandle } from "./command-handle.ts";
export type { SignalName } from "./command-handle.ts";
export { Files } from "./files.ts";
export type { ReadOptions, UserOptions, WriteOptions } from "./files.ts";
export { CommandError, ForkError } from "./errors.ts";
export { outputBytes } from "./output.ts";
export { fetchTransport } from "./transport.ts";
export type { Fetch, Transport, TransportRequest, TransportResponse } from "./transport.ts";
export type { CallOptions, Content, JsonRoute } from "./client.ts";
