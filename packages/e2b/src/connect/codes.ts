/** Error codes of Connect, and which of them says what one of our errors means. Pure. */
import { toAppError, type AppError, type ErrorCode } from "@forkd/contract";

/** Code and HTTP status of a unary answer */
export const connectStatus = {
  canceled: 499,
  unknown: 500,
  invalid_argument: 400,
  deadline_exceeded: 504,
  not_found: 404,
  already_exists: 409,
  permission_denied: 403,
  resource_exhausted: 429,
  failed_precondition: 400,
  unimplemented: 501,
  internal: 500,
  unavailable: 503,
  unauthenticated: 401,
} as const;

type ConnectCode = keyof typeof connectStatus;

const codes: Partial<Record<ErrorCode, ConnectCode>> = {
  invalid_request: "invalid_argument",
  body_too_large: "invalid_argument",
  unauthenticated: "unauthenticated",
  forbidden: "permission_denied",
  not_found: "not_found",
  file_not_found: "not_found",
  exec_not_found: "not_found",
  already_exists: "already_exists",
  capacity_exhausted: "resource_exhausted",
  rate_limited: "resource_exhausted",
  cancelled: "canceled",
  deadline_exceeded: "deadline_exceeded",
  unsupported: "unimplemented",
  wrong_state: "failed_precondition",
  sandbox_not_found: "unavailable",
  sandbox_paused: "unavailable",
  sandbox_dead: "unavailable",
  agent_unreachable: "unavailable",
  daemon_stopping: "unavailable",
};

/** What a refusal of the guest means. Other errnos are `internal`. */
const errnos: Readonly<Record<string, ConnectCode>> = {
  ENOENT: "not_found",
  EEXIST: "already_exists",
  EACCES: "permission_denied",
  EPERM: "permission_denied",
  EROFS: "permission_denied",
  ENOTDIR: "invalid_argument",
  EISDIR: "invalid_argument",
  EINVAL: "invalid_argument",
  ENAMETOOLONG: "invalid_argument",
  ELOOP: "invalid_argument",
};

export function errnoOf(error: unknown): string | undefined {
  const errno = toAppError(error).details["errno"];
  return typeof errno === "string" ? errno : undefined;
}

export function connectCodeOf(error: AppError): ConnectCode {
  const known = codes[error.code];
  if (known) return known;
  const errno = error.code === "guest_refused" ? errnoOf(error) : undefined;
  return (errno !== undefined && errnos[errno]) || "internal";
}

/** The form of an error in a unary answer and in the last frame of a stream. */
export function connectError(error: AppError): { code: ConnectCode; message: string } {
  return { code: connectCodeOf(error), message: error.message };
}
