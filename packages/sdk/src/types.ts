/** The values that calls return: those of the contract with the names and units of this SDK. */
import type * as wire from "@forkd/contract";
import type { AnswerOf, Camel } from "./convert/types.ts";

type WithoutError<T> = Exclude<T, { type: "error" }>;

/** A sandbox: its state, snapshot, limits and timeouts. */
export type SandboxInfo = Camel<wire.SandboxInfo>;
/** What a sandbox uses of the host. */
export type SandboxStats = Camel<wire.SandboxStats>;
/** What all sandboxes use of the host. */
export type Stats = Camel<wire.Stats>;
/** A snapshot in a list. */
export type SnapshotInfo = Camel<wire.SnapshotInfo>;
/** Everything about one snapshot. */
export type SnapshotDetail = Camel<wire.SnapshotDetail>;
/** Snapshots that were removed, and the bytes that this freed. */
export type RemovedSnapshots = Camel<wire.RemovedSnapshots>;
/** One line of the progress of a build. */
export type BuildEvent = Camel<WithoutError<wire.BuildEvent>>;
/** Progress within a step of a build. */
export type Progress = Extract<BuildEvent, { type: "progress" }>;
/** A step of a build that has ended, and its time. */
export type BuildStep = Extract<BuildEvent, { type: "step" }>;
/** Progress of packing: `pack` counts bytes of files, `verify` counts snapshots. */
export type PackProgress = Extract<Camel<wire.PackEvent>, { type: "progress" }>;
/** The archive of a snapshot: its digest and sizes. */
export type PackedArchive = Camel<wire.PackedArchive>;
/** The snapshots of an archive that was unpacked. */
export type UnpackedArchive = Camel<wire.UnpackedArchive>;
/** Progress of a verification. */
export type VerifyProgress = Extract<Camel<wire.VerifyEvent>, { type: "progress" }>;
/** The result of the check of one hazard. */
export type HazardResult = Camel<wire.HazardResult>;
/** The last result of a verification, as a snapshot keeps it. */
export type Verification = Camel<wire.Verification>;
/** The result of a verification. */
export type VerifyReport = Camel<wire.VerifyReport>;
/** Progress of a push or a pull. */
export type TransferProgress = Extract<Camel<wire.PushEvent>, { type: "progress" }>;
/** What a push sent. */
export type PushResult = Camel<wire.PushResult>;
/** What a pull fetched. */
export type PullResult = Camel<wire.PullResult>;
/** Where a signature was attached. */
export type SignResult = Camel<wire.SignResult>;
/** The snapshots of a registry. */
export type SearchResult = Camel<wire.SearchResult>;
/** The lineage of snapshots and sandboxes. */
export type Tree = Camel<wire.Tree>;
/** What a garbage collection removed. */
export type GcReport = Camel<wire.GcReport>;
/** What a cleanup removed. */
export type CleanupReport = Camel<wire.CleanupReport>;
/** What a shutdown stopped and kept. */
export type ShutdownResult = Camel<wire.ShutdownResult>;
/** Checks of the host. */
export type DoctorReport = Camel<wire.DoctorReport>;
/** The state of the daemon. */
export type Status = Camel<wire.Status>;
/** Settings of the daemon, and where each comes from. */
export type Config = AnswerOf<"config">;
/** A workspace: a sandbox with a name. */
export type WorkspaceInfo = Camel<wire.WorkspaceInfo>;
/** A key, without its text. */
export type KeyInfo = Camel<wire.KeyInfo>;
/** A new key with its text (`key`). */
export type CreatedKey = Camel<wire.CreatedKey>;
/** A secret, without its value. */
export type SecretInfo = Camel<wire.SecretInfo>;
/** Children that wait ready to be handed out. */
export type PoolInfo = Camel<wire.PoolInfo>;
/** Keys and policy of a repository. */
export type TrustEntry = Camel<wire.TrustEntry>;
/** Mode, rules, secrets and counters of the network of a sandbox. */
export type NetworkInfo = Camel<wire.NetworkInfo>;
/** A connection or look-up of a sandbox, allowed or denied. */
export type NetworkLogEntry = Camel<wire.NetworkLogEntry>;
/** A named list of rules. */
export type PresetInfo = Camel<wire.PresetInfo>;
/** An open port. */
export type PortInfo = Camel<wire.PortInfo>;
/** An open port with its token, unless it is public. */
export type OpenedPort = Camel<wire.OpenedPort>;
/** A file, directory or other entry of the file system of a guest. */
export type FileEntry = Camel<wire.FileEntry>;
/** A change below a watched directory; `overflow` says that changes were lost. */
export type WatchEvent = Camel<Exclude<wire.WatchEvent, { type: "error" | "started" }>>;
/** Exit code and output of a command. */
export type CommandResult = Camel<wire.ExecResult>;
/** Something that a running command does: it starts, writes or exits. */
export type CommandEvent = Camel<WithoutError<wire.ExecEvent>>;
/** A piece of output of a command or of code; `outputBytes()` returns its bytes. */
export type OutputEvent = Extract<CommandEvent, { type: "stdout" | "stderr" }>;
/** A running or recently finished command in a list. */
export type CommandInfo = Camel<wire.ExecInfo>;
/** A service that the recipe of the snapshot started. */
export type ServiceInfo = Camel<wire.ServiceInfo>;
/** Value, displayed objects, output and error of code. */
export type EvalResult = Camel<wire.EvalResult>;
/** A displayed object, or the value of the last expression, in every form that it has. */
export type EvalDisplay = Camel<wire.EvalDisplay>;
/** An exception as data. */
export type EvalErrorInfo = Camel<wire.EvalErrorInfo>;
/** Something that running code does: it writes, displays an object, or has its result. */
export type EvalEvent = Camel<WithoutError<wire.EvalEvent>>;
/** Code that runs, or that a branch carried into the sandbox. */
export type EvalInfo = Camel<wire.EvalInfo>;
/** A context: a set of variables with a name. */
export type ContextInfo = Camel<wire.EvalContext>;
/** Something that happened to a sandbox, a snapshot or the daemon. */
export type ForkdEvent = Camel<wire.ForkdEvent>;
/** Whether the agent in the guest answers, and how fast. */
export type Ping = AnswerOf<"ping">;
