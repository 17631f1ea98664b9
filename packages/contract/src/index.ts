export { errorBodySchema } from "./error-body.ts";
export { AppError, errorCodes, errorMessage, fromErrorBody, toAppError, toErrorBody } from "./errors.ts";
export { advice, parseRemedy, remedyActions, wordRemedy } from "./remedies.ts";
export { httpRemedy } from "./http-remedies.ts";
export type { Remedy, RemedyAction, RemedyBody, RemedyOf, RemedyWording } from "./remedies.ts";
export { isSandbox, maxBufferedOutput, sandboxIdPattern, signalNames, tagPattern } from "./names.ts";
export type { ErrorBody, ErrorCode } from "./errors.ts";
export { execIdSchema, languageSchema, sandboxIdSchema, tagSchema } from "./ids.ts";
export type { Language } from "./ids.ts";
export { acceleratorSchema, forkRequestSchema, forkResultSchema, sandboxSchema } from "./sandbox.ts";
export type { Accelerator, ForkEntry, ForkRequest, SandboxInfo } from "./sandbox.ts";
export { branchModeSchema, buildEventSchema, createSnapshotSchema, snapshotSchema } from "./snapshot.ts";
export type {
  BranchMode,
  BuildEvent,
  CreateSnapshotRequest,
  SnapshotDetail,
  SnapshotInfo,
} from "./snapshot.ts";
export { limitNames, limitsSchema, askedLimitsSchema, onTimeoutSchema } from "./limits.ts";
export type { AskedLimits, LimitName, Limits, NotEnforced, OnTimeout, WithLimits } from "./limits.ts";
export { workspaceNameSchema } from "./branch.ts";
export type { BranchRequest, BranchResult, GcReport, GcRequest, Tree, WorkspaceInfo } from "./branch.ts";
export { evalEventSchema, execEventSchema } from "./exec.ts";
export type {
  EvalEvent,
  EvalRequest,
  EvalResult,
  ExecEvent,
  ExecInfo,
  ExecRequest,
  ExecResult,
} from "./exec.ts";
export { fileEntrySchema } from "./files.ts";
export type { FileEntry } from "./files.ts";
export type { SettingInfo } from "./config-routes.ts";
export type { AuditStatus, Check, CleanupReport, DoctorReport, Status } from "./system.ts";
export { keyNameSchema, keyScopeSchema, scopes } from "./keys.ts";
export type { CreatedKey, KeyInfo, Scope } from "./keys.ts";
export { controlTypes, eventTypes, matchesType } from "./event-types.ts";
export { eventSchema } from "./events.ts";
export type { EventsRequest, EventType, ForkdEvent } from "./events.ts";
export { contentBodyBytes, idempotencyKeyHeader, usualBodyBytes } from "./route.ts";
export type { SandboxStats, Stats } from "./stats.ts";
export { routes } from "./routes.ts";
export type { ParsedOf, RequestOf, ResponseOf, Route, RouteName, Routes } from "./routes.ts";
export { defaultDataDir, defaultRuntimeDir, type DirectoryFacts } from "./directories.ts";
export { openapi } from "./openapi.ts";
