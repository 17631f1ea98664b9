/** The SDK for every JavaScript runtime; the entry for Node adds `connect()`, which finds the daemon of this user. */
export { AppError as ForkdError, errorCodes } from "@forkd/contract/wire";
export type { BranchMode, ErrorCode, EventType, HazardId, HazardOutcome } from "@forkd/contract";
export type { Language, NetworkMode, Remedy, Scope, TrustPolicy } from "@forkd/contract";
export { wireOf } from "./convert/answer.ts";
export { Forkd } from "./forkd.ts";
export { Sandboxes } from "./sandboxes.ts";
export { Sandbox } from "./sandbox.ts";
export type { Branch, BranchOptions, DaemonOption, LogOptions, TimeoutChanges } from "./sandbox.ts";
export type { ConnectOptions } from "./connect-options.ts";
export type { Daemon } from "./connector.ts";
export type { ForkOptions, LimitOptions, NetworkOptions, SandboxFilter } from "./sandbox-options.ts";
export type { SandboxOptions, TimeoutOptions, Variation } from "./sandbox-options.ts";
export { Paginator } from "./paginator.ts";
export { Run } from "./run.ts";
export { Stream } from "./stream.ts";
export { Snapshots } from "./snapshots.ts";
export type { BuildOptions, BuildRequest, SnapshotFilter, VerifyOptions } from "./snapshots.ts";
export type { ArchiveOptions, PackOptions, UnpackOptions } from "./snapshots.ts";
export type { DeriveRequest } from "./derive.ts";
export { Workspaces } from "./workspaces.ts";
export type { WorkspaceFilter } from "./workspaces.ts";
export { Keys } from "./keys.ts";
export type { KeyOptions } from "./keys.ts";
export { Hub } from "./hub.ts";
export type {
  HubOptions,
  PullOptions,
  PushOptions,
  RegistryAuth,
  SearchOptions,
  SignOptions,
} from "./hub.ts";
export { Network, Presets, SandboxNetwork } from "./network.ts";
export type { NetworkChanges, NetworkLogOptions } from "./network.ts";
export { ReadyPool } from "./pool.ts";
export { Secrets } from "./secrets.ts";
export type { SecretOptions } from "./secrets.ts";
export { TrustList } from "./trust.ts";
export { Evals } from "./code.ts";
export type { EvalCallbacks, EvalOptions, EvalRun } from "./code.ts";
export { Contexts } from "./contexts.ts";
export type { ContextOptions, CreateContextOptions, InterruptOptions } from "./contexts.ts";
export { Commands } from "./commands.ts";
export type { AttachOptions, BackgroundOptions, CommandOptions, CommandRun, RunOptions } from "./commands.ts";
export { CommandHandle } from "./command-handle.ts";
export type { SignalName } from "./command-handle.ts";
export { Pty } from "./pty.ts";
export type { PtyOptions } from "./pty.ts";
export { Files } from "./files.ts";
export type { ReadOptions, UserOptions, WatchOptions, WriteOptions } from "./files.ts";
export { Ports } from "./ports.ts";
export type { OpenPortOptions } from "./ports.ts";
export { CommandError, ForkError, isForkdError } from "./errors.ts";
export { remedyText } from "./remedies.ts";
export { outputBytes } from "./output.ts";
export type { OutputCallbacks } from "./output.ts";
export { fetchTransport } from "./transport.ts";
export type { Fetch, RawStream, Transport, TransportRequest, TransportResponse } from "./transport.ts";
export type { EventOptions } from "./events.ts";
export type { CallOptions, Content, CreateOptions, JsonRoute } from "./client.ts";
export type * from "./types.ts";
