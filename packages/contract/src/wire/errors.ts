/** The table of all errors, the error class, and the form of errors on the wire. Needs no library. */
import { httpRemedy } from "./http-remedies.ts";
import { parseRemedy, type Remedy, type RemedyBody } from "./remedies.ts";

/** `status` is HTTP, `exit` is the CLI's exit code. */
export const errorCodes = {
  invalid_request: { status: 400, exit: 2, retryable: false },
  invalid_recipe: { status: 400, exit: 2, retryable: false },
  invalid_image: { status: 400, exit: 2, retryable: false },
  invalid_archive: { status: 400, exit: 2, retryable: false },
  /** a key for signatures is not in PEM form, or of an algorithm that is not supported */
  invalid_signing_key: { status: 400, exit: 2, retryable: false },
  unauthenticated: { status: 401, exit: 5, retryable: false },
  forbidden: { status: 403, exit: 5, retryable: false },
  /** a registry denies access, or needs credentials */
  registry_denied: { status: 403, exit: 5, retryable: false },
  not_found: { status: 404, exit: 3, retryable: false },
  sandbox_not_found: { status: 404, exit: 3, retryable: false },
  snapshot_not_found: { status: 404, exit: 3, retryable: false },
  workspace_not_found: { status: 404, exit: 3, retryable: false },
  exec_not_found: { status: 404, exit: 3, retryable: false },
  /** a registry has no such manifest or blob */
  artifact_not_found: { status: 404, exit: 3, retryable: false },
  secret_not_found: { status: 404, exit: 3, retryable: false },
  key_not_found: { status: 404, exit: 3, retryable: false },
  file_not_found: { status: 404, exit: 3, retryable: false },
  recipe_not_found: { status: 404, exit: 3, retryable: false },
  port_not_open: { status: 404, exit: 3, retryable: false },
  method_not_allowed: { status: 405, exit: 2, retryable: false },
  wrong_state: { status: 409, exit: 4, retryable: true },
  sandbox_paused: { status: 409, exit: 4, retryable: false },
  sandbox_dead: { status: 409, exit: 4, retryable: false },
  snapshot_exists: { status: 409, exit: 4, retryable: false },
  chain_too_deep: { status: 409, exit: 4, retryable: false },
  snapshot_writing: { status: 409, exit: 4, retryable: true },
  snapshot_failed: { status: 409, exit: 4, retryable: false },
  snapshot_in_use: { status: 409, exit: 4, retryable: false },
  snapshot_incompatible: { status: 409, exit: 4, retryable: false },
  /** a hazard that the snapshot requires is not checked for it, or its check failed */
  unsafe_snapshot: { status: 409, exit: 10, retryable: false },
  /** the policy of the repository requires a signature, and there is none */
  signature_missing: { status: 409, exit: 10, retryable: false },
  /** no signature is by a pinned key and for this content */
  signature_invalid: { status: 409, exit: 10, retryable: false },
  already_exists: { status: 409, exit: 4, retryable: false },
  other_daemon: { status: 409, exit: 4, retryable: false },
  workspace_not_saved: { status: 409, exit: 4, retryable: true },
  data_dir_in_use: { status: 409, exit: 4, retryable: false },
  body_too_large: { status: 413, exit: 2, retryable: false },
  idempotency_mismatch: { status: 422, exit: 2, retryable: false },
  guest_refused: { status: 422, exit: 9, retryable: false },
  capacity_exhausted: { status: 429, exit: 6, retryable: true },
  rate_limited: { status: 429, exit: 6, retryable: true },
  cancelled: { status: 499, exit: 7, retryable: true },
  internal: { status: 500, exit: 1, retryable: false },
  snapshot_corrupt: { status: 500, exit: 8, retryable: false },
  unsupported: { status: 501, exit: 2, retryable: false },
  limit_not_enforceable: { status: 501, exit: 2, retryable: false },
  agent_unreachable: { status: 502, exit: 8, retryable: true },
  engine_failed: { status: 502, exit: 8, retryable: true },
  kernel_failed: { status: 502, exit: 8, retryable: true },
  /** nothing accepts connections on the port in the guest */
  port_refused: { status: 502, exit: 8, retryable: true },
  /** the server in the guest closed the connection, or its answer is not HTTP */
  port_failed: { status: 502, exit: 8, retryable: false },
  registry_unreachable: { status: 502, exit: 8, retryable: true },
  /** a registry breaks its protocol, or does not support what is asked of it */
  registry_failed: { status: 502, exit: 8, retryable: false },
  /** what a registry or an archive has is not what its digest says */
  artifact_corrupt: { status: 502, exit: 8, retryable: false },
  host_not_ready: { status: 503, exit: 8, retryable: false },
  /** the sandbox keeps running; the next daemon adopts it */
  daemon_stopping: { status: 503, exit: 8, retryable: true },
  daemon_unreachable: { status: 503, exit: 8, retryable: true },
  /** the exit code of timeout(1) */
  deadline_exceeded: { status: 504, exit: 124, retryable: true },
  disk_full: { status: 507, exit: 6, retryable: true },
} as const satisfies Record<string, { status: number; exit: number; retryable: boolean }>;

export type ErrorCode = keyof typeof errorCodes;

export type AppErrorOptions = {
  details?: Record<string, unknown>;
  /** what the caller can do about it; at most one */
  remedy?: Remedy | undefined;
  cause?: unknown;
};

/**
 * The one error class that crosses module boundaries. Branch on `code`, never on `message`. The message says
 * what failed and why, without a full stop and without a remedy: each surface adds the remedy in its own
 * words.
 */
export class AppError extends Error {
  /** Clients know the class by this name. */
  override readonly name: string = "ForkdError";
  readonly code: ErrorCode;
  readonly details: Readonly<Record<string, unknown>>;
  declare readonly remedy?: Remedy;

  constructor(code: ErrorCode, message: string, options: AppErrorOptions = {}) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    this.code = code;
    this.details = options.details ?? {};
    if (options.remedy !== undefined) this.remedy = options.remedy;
  }
}

/** Its form on the wire; the schema is in error-body.ts. */
export type ErrorBody = {
  /** what failed, for a person */
  error: string;
  /** stable, from the table */
  code: string;
  details: Record<string, unknown>;
  /** what the caller can do about it */
  remedy?: RemedyBody | undefined;
  request_id?: string | undefined;
};

function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(errorCodes, code);
}

/** The wire form of any thrown value; what is not an AppError is `internal`. */
export function toErrorBody(error: unknown, requestId?: string): ErrorBody & { code: ErrorCode } {
  const app = toAppError(error);
  // fromErrorBody() keeps the id of the daemon's request in the details.
  const { request_id: earlier, ...details } = app.details;
  const id = requestId ?? (typeof earlier === "string" ? earlier : undefined);
  return {
    error: app.message,
    code: app.code,
    details,
    ...(app.remedy && { remedy: { ...app.remedy, text: httpRemedy(app.remedy) } }),
    ...(id !== undefined && { request_id: id }),
  };
}

/** What a thrown value says, whatever it is. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function toAppError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  const errno = error instanceof Error && "code" in error ? error.code : undefined;
  const message = errorMessage(error);
  if (errno === "ENOSPC" || errno === "EDQUOT") {
    return new AppError("disk_full", `No space is left on the disk: ${message}`, {
      remedy: { action: "free_disk" },
      cause: error,
    });
  }
  // A program of ours was killed or crashed; what it was asked to do can be tried again.
  if (errno === "EHELPER") return new AppError("engine_failed", message, { cause: error });
  return new AppError("internal", message, { cause: error });
}

/** The error that a wire form describes; a code that this version does not know becomes `internal`. */
export function fromErrorBody(body: ErrorBody): AppError {
  const details =
    body.request_id === undefined ? body.details : { ...body.details, request_id: body.request_id };
  const remedy = parseRemedy(body.remedy);
  return isErrorCode(body.code)
    ? new AppError(body.code, body.error, { details, remedy })
    : new AppError("internal", body.error, { details: { ...details, unknown_code: body.code }, remedy });
}
