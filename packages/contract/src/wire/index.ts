/**
 * The part of the contract that needs no schema library, as `@forkd/contract/wire`, so that clients load in
 * half the time. Types come from the main entry, which costs nothing at run time.
 */
export { deadlineSignal, type DeadlineSignal } from "./deadline-signal.ts";
export { defaultDataDir, defaultRuntimeDir, type DirectoryFacts } from "./directories.ts";
export { eventTypes } from "./event-types.ts";
export { AppError, errorCodes, errorMessage, fromErrorBody, toAppError, toErrorBody } from "./errors.ts";
export { opaqueFields, requestFields } from "./fields.gen.ts";
export { hazardIds } from "./hazards.ts";
export { advice, parseRemedy, remedyActions, wordRemedy } from "./remedies.ts";
export { isSandbox, maxBufferedOutput, sandboxIdPattern, signalNames, tagPattern } from "./names.ts";
export { portToken, proxyPath, tunnelPath, tunnelProtocol } from "./ports.ts";
export { plural } from "./plural.ts";
export { signaturePayload, signaturePayloadType } from "./signature.ts";
export { similarIn, similarNames } from "./similar.ts";
export { wireRoutes } from "./routes.gen.ts";
