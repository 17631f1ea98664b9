export { errorBodySchema } from "./error-body.ts";
export { boundRule, typeName } from "./issue-words.ts";
export { AppError, errorCodes, errorMessage, fromErrorBody, toAppError, toErrorBody } from "./wire/errors.ts";
export { advice, parseRemedy, remedyActions, wordRemedy } from "./wire/remedies.ts";
export { similarNames } from "./wire/similar.ts";
export { httpRemedy } from "./wire/http-remedies.ts";
export type { Remedy, RemedyAction, RemedyBody, RemedyOf, RemedyWording } from "./wire/remedies.ts";
export {
  contextNamePattern,
  displayParts,
  isSandbox,
  maxBufferedOutput,
  sandboxIdPattern,
  scopes,
  serviceNamePattern,
  signalNames,
  tagPattern,
} from "./wire/names.ts";
export { hazardIds } from "./wire/hazards.ts";
export type { HazardId } from "./wire/hazards.ts";
export { plural } from "./wire/plural.ts";
export type { DisplayPart, Scope } from "./wire/names.ts";
export type { AppErrorOptions, ErrorBody, ErrorCode } from "./wire/errors.ts";
export { execIdSchema, languageSchema, sandboxIdSchema, tagSchema } from "./ids.ts";
export type { Language } from "./ids.ts";
export { acceleratorSchema, forkRequestSchema, forkResultSchema, sandboxSchema } from "./sandboxes.ts";
export type { Accelerator, ForkEntry, ForkRequest, SandboxInfo } from "./sandboxes.ts";
export {
  branchModeSchema,
  buildEventSchema,
  createSnapshotSchema,
  guestMemorySchema,
  snapshotSchema,
} from "./snapshots.ts";
export type {
  BranchMode,
  BuildEvent,
  CreateSnapshotRequest,
  GcReport,
  GcRequest,
  RemovedSnapshots,
  SnapshotDetail,
  SnapshotInfo,
  Tree,
} from "./snapshots.ts";
export { archiveLevels, packEventSchema } from "./archives.ts";
export type { PackedArchive, PackEvent, UnpackedArchive } from "./archives.ts";
export { hazardIdSchema, hazardResultSchema, requireSchema, verifyEventSchema } from "./verify.ts";
export type {
  HazardOutcome,
  HazardResult,
  Verification,
  VerifyEvent,
  VerifyReport,
  VerifyRequest,
} from "./verify.ts";
export type {
  PullEvent,
  PullRequest,
  PullResult,
  SignResult,
  PushEvent,
  PushRequest,
  PushResult,
  RegistryAuth,
  SearchRequest,
  SearchResult,
} from "./hub.ts";
export { limitNames, limitsSchema, askedLimitsSchema, onTimeoutSchema } from "./limits.ts";
export type { AskedLimits, LimitName, Limits, NotEnforced, OnTimeout, WithLimits } from "./limits.ts";
export type { BranchRequest, BranchResult } from "./branches.ts";
export { askedNetworkSchema, networkModeSchema, ruleTextSchema, secretNameSchema } from "./network.ts";
export type {
  AskedNetwork,
  NetworkInfo,
  NetworkLogEntry,
  NetworkMode,
  PresetInfo,
  SecretInfo,
} from "./network.ts";
export type { PoolInfo } from "./pool.ts";
export { maxPublicKeyChars, trustPatternSchema, trustPolicySchema } from "./trust.ts";
export type { TrustEntry, TrustPolicy } from "./trust.ts";
export { workspaceNameSchema } from "./workspaces.ts";
export type { WorkspaceInfo } from "./workspaces.ts";
export { execEventSchema } from "./exec.ts";
export type { ExecEvent, ExecInfo, ExecRequest, ExecResult, ServiceInfo } from "./exec.ts";
export { evalEventSchema } from "./eval.ts";
export type {
  EvalContext,
  EvalDisplay,
  EvalErrorInfo,
  EvalEvent,
  EvalInfo,
  EvalRequest,
  EvalResult,
} from "./eval.ts";
export { fileEntrySchema, watchEventSchema } from "./files.ts";
export type { FileEntry, WatchEvent } from "./files.ts";
export { passedRoutes } from "./ports.ts";
export type { OpenedPort, PortInfo } from "./ports.ts";
export { portLabel, portToken, proxyPath, tunnelPath, tunnelProtocol } from "./wire/ports.ts";
export type { SettingInfo } from "./settings.ts";
export type { AuditStatus, Check, CleanupReport, DoctorReport, ShutdownResult, Status } from "./system.ts";
export { keyNameSchema, keyScopeSchema } from "./keys.ts";
export type { CreatedKey, KeyInfo } from "./keys.ts";
export { controlTypes, eventTypes, matchesType } from "./wire/event-types.ts";
export { eventSchema } from "./events.ts";
export type { EventsRequest, EventType, ForkdEvent } from "./events.ts";
export { contentBodyBytes, usualBodyBytes } from "./route.ts";
export type { Route } from "./route.ts";
export type { SandboxStats, Stats } from "./stats.ts";
export { routes } from "./routes.ts";
export type { ParsedOf, RequestOf, ResponseOf, RouteName, Routes, StreamedOf } from "./routes.ts";
export { defaultDataDir, defaultRuntimeDir, type DirectoryFacts } from "./wire/directories.ts";
export { openapi } from "./openapi.ts";
