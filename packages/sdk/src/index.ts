/** The SDK for every JavaScript runtime; `@forkd/sdk/node` adds `connect()`. */
export { AppError, errorCodes } from "@forkd/contract/wire";
export type {
  BranchMode,
  BuildEvent,
  CleanupReport,
  CreatedKey,
  DoctorReport,
  ErrorCode,
  EvalEvent,
  EvalResult,
  ExecEvent,
  ExecInfo,
  ExecResult,
  EventType,
  FileEntry,
  ForkdEvent,
  GcReport,
  KeyInfo,
  Language,
  Remedy,
  SandboxInfo,
  ServiceInfo,
  Scope,
  SandboxStats,
  SnapshotDetail,
  SnapshotInfo,
  Stats,
  Status,
  Tree,
  WorkspaceInfo,
} from "@forkd/contract";
export { Forkd, Sandboxes } from "./forkd.ts";
export type { ForkOptions } from "./fork.ts";
export type { LifeOptions } from "./sandbox-options.ts";
export { Snapshots } from "./snapshots.ts";
export type { Progress } from "./snapshots.ts";
export type { DeriveRequest, DiffRequest, OutputEvent } from "./derive.ts";
export { Workspaces } from "./workspaces.ts";
export { Keys } from "./keys.ts";
export type { KeyOptions } from "./keys.ts";
export { Sandbox } from "./sandbox.ts";
export type { Branch, BranchOptions, EvalOptions } from "./sandbox.ts";
export { Commands } from "./commands.ts";
export type { CommandOptions, RunOptions, StartOptions } from "./commands.ts";
export { CommandHandle } from "./command-handle.ts";
export type { SignalName } from "./command-handle.ts";
export { Files } from "./files.ts";
export type { ReadOptions, UserOptions, WriteOptions } from "./files.ts";
export { CommandError, ForkError } from "./errors.ts";
export { remedyText } from "./remedies.ts";
export { outputBytes } from "./output.ts";
export { fetchTransport } from "./transport.ts";
export type { Fetch, Transport, TransportRequest, TransportResponse } from "./transport.ts";
export type { EventOptions } from "./events.ts";
export type { CallOptions, Content, CreateOptions, JsonRoute } from "./client.ts";
