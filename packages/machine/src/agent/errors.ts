/** Failures of a guest and the errors that callers see. */
import { getSystemErrorName } from "node:util";
import { advice, AppError } from "@forkd/contract";

/** The guest broke the protocol and loses its connection: the cause of an `agent_unreachable` error. */
export class ProtocolError extends Error {
  override readonly name = "ProtocolError";

  constructor(what: string) {
    super(`Guest broke the agent protocol: ${what}`);
  }
}

/** The error that everything pending rejects with when the connection ends. */
export function unreachable(reason: Error | undefined): AppError {
  if (reason instanceof AppError) return reason;
  const why = reason?.message ?? "connection closed";
  return new AppError("agent_unreachable", `Cannot reach the guest agent: ${why}`, {
    details: { reason: why },
    ...(reason && { cause: reason }),
  });
}

/** The guest missed the deadline of `action`. */
export function silentGuest(action: string, ms: number): AppError {
  return new AppError(
    "agent_unreachable",
    `Cannot ${action}: the guest did not answer within ${ms / 1000} s`,
    {
      details: { timeout_ms: ms },
    },
  );
}

/** `ENOENT` for 2. The guest and the host are both Linux, so the numbers are the same. */
export function errnoName(errno: number): string {
  if (errno <= 0 || errno > 4095) return `errno ${errno}`;
  const name = getSystemErrorName(-errno);
  return name.startsWith("E") ? name : `errno ${errno}`;
}

/** The guest answered `action` with an errno. */
export function refusal(action: string, errno: number, text: string): AppError {
  const name = errnoName(errno);
  const message = `Cannot ${action}: ${reasonIn(text, action) || name}`;
  const details = { errno: name, text };
  return name === "EAGAIN"
    ? new AppError("capacity_exhausted", message, { details })
    : new AppError("guest_refused", message, { details });
}

/** The same for a file operation, where some errnos have specific codes. */
export function fileRefusal(action: string, errno: number, text: string): AppError {
  const refused = refusal(action, errno, text);
  const { message, details } = refused;
  const name = errnoName(errno);
  if (name === "ENOENT") return new AppError("file_not_found", message, { details });
  if (name === "EEXIST") return new AppError("already_exists", message, { details });
  if (name === "ENOSPC" || name === "EDQUOT") {
    return new AppError("disk_full", message, {
      details: { ...details, where: "guest" },
      remedy: advice("Delete files in the sandbox, or fork it from a snapshot with a larger disk."),
    });
  }
  return refused;
}

/**
 * What the agent's line adds to the action. The agent names the step and its subject
 * (`cannot open '/x': No such file or directory`, `user 'bob': Invalid argument`), which the action names too.
 */
function reasonIn(text: string, action: string): string {
  const line = /^(?:cannot )?(\w+) '(.*)': ([^':]+)$/s.exec(text);
  if (!line) return text;
  const [, step = "", subject = "", reason = ""] = line;
  if (step === "user" && reason === "Invalid argument")
    return `the guest has no user ${subject.includes(":") ? "or group " : ""}"${subject}"`;
  if (step === "cwd") return `its working directory "${subject}": ${reason}`;
  if (step === "user") return `user "${subject}": ${reason}`;
  return action.includes(JSON.stringify(subject)) || action.includes(`"${subject}"`)
    ? reason
    : `"${subject}": ${reason}`;
}
