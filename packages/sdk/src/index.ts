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
  HazardId,
  HazardOutcome,
  HazardResult,
  KeyInfo,
  Language,
  NetworkInfo,
  NetworkLogEntry,
  NetworkMode,
  PresetInfo,
  OpenedPort,
  PortInfo,
  Remedy,
  SandboxInfo,
  ServiceInfo,
  Scope,
  SandboxStats,
  SecretInfo,
  SnapshotDetail,
  SnapshotInfo,
  Stats,
  Status,
  Tree,
  Verification,
  VerifyReport,
  WorkspaceInfo,
} from "@forkd/contract";
export { Forkd, Sandboxes } from "./forkd.ts";
export type { ForkOptions } from "./fork.ts";
export type { LifeOptions, NetworkOptions } from "./sandbox-options.ts";
export { Snapshots } from "./snapshots.ts";
export type { BuildStep, Progress, VerifyOptions, VerifyProgress } from "./snapshots.ts";
export type { DeriveRequest, DiffRequest, OutputEvent } from "./derive.ts";
export { Workspaces } from "./workspaces.ts";
export { Keys } from "./keys.ts";
export type { KeyOptions } from "./keys.ts";
export { Network, Presets, SandboxNetwork } from "./network.ts";
export { Secrets } from "./secrets.ts";
export type { SecretOptions } from "./secrets.ts";
export { Sandbox } from "./sandbox.ts";
export type { Branch, BranchOptions, EvalOptions } from "./sandbox.ts";
export { Commands } from "./commands.ts";
export type { CommandOptions, RunOptions, StartOptions } from "./commands.ts";
export { CommandHandle } from "./command-handle.ts";
export type { SignalName } from "./command-handle.ts";
export { Files } from "./files.ts";
export type { ReadOptions, UserOptions, WriteOptions } from "./files.ts";
export { Ports } from "./ports.ts";
export type { OpenPortOptions } from "./ports.ts";
export { CommandError, ForkError } from "./errors.ts";
export { remedyText } from "./remedies.ts";
export { outputBytes } from "./output.ts";
export { fetchTransport } from "./transport.ts";
export type { Fetch, RawStream, Transport, TransportRequest, TransportResponse } from "./transport.ts";
export type { EventOptions } from "./events.ts";
export type { CallOptions, Content, CreateOptions, JsonRoute } from "./client.ts";
