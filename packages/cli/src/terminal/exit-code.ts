/** Failures → exit code, message and remedy. The numbers come from the contract's table of codes. */
import { CommanderError } from "commander";
import { errorCodes, toErrorBody, AppError } from "@forkd/contract/wire";
import type { ErrorBody, ErrorCode } from "@forkd/contract";

const remedies: Partial<Record<ErrorCode, string>> = {
  unauthenticated:
    "Set FORKD_TOKEN to the daemon's token, or to a key that `forkd keys create NAME` made on the daemon's host.",
  key_not_found: "`forkd keys ls` lists the keys.",
  rate_limited: "Wait a moment, or raise rate_limit_per_second of the daemon.",
  sandbox_not_found: "`forkd ls --all` lists the sandboxes.",
  workspace_not_found: "`forkd workspace ls` lists the workspaces.",
  snapshot_not_found: "`forkd images` lists the snapshots; `forkd build RECIPE` makes one.",
  recipe_not_found: "Give a directory with a recipe.json, or the name of a bundled recipe.",
  snapshot_exists: "Choose another tag, remove that one with `forkd rmi TAG`, or build with --force.",
  snapshot_writing: "Wait: `forkd images` says when it is ready.",
  snapshot_failed: "Remove it with `forkd rmi TAG` and make it again.",
  snapshot_in_use:
    "Kill its sandboxes with `forkd kill --tag TAG`, remove the layers over it with --cascade, or use --force.",
  snapshot_incompatible: "Build it again on this host with --force.",
  snapshot_corrupt: "Remove it with `forkd rmi TAG` and build it again.",
  idempotency_mismatch: "Use a new --idempotency-key, or repeat the first request exactly.",
  sandbox_paused: "`forkd resume ID` goes on with it.",
  sandbox_dead: "`forkd ls --all` says why it died; `forkd logs ID` has its console.",
  agent_unreachable: "`forkd logs ID` shows the console of the guest.",
  capacity_exhausted:
    "Pause or kill sandboxes that are not needed (`forkd ls`), or wait for branches under way (`forkd images`).",
  disk_full: "Free space with `forkd gc` and `forkd rmi TAG`.",
  host_not_ready: "`forkd doctor` says what is missing.",
  data_dir_in_use: "Another daemon uses the data directory; stop it with `forkd down`.",
  daemon_unreachable: "Start the daemon with `forkd up`, or check FORKD_SOCKET and FORKD_URL.",
};

export type Failure = {
  readonly body: ErrorBody;
  readonly exitCode: number;
  readonly remedy: string | undefined;
};

/** Exit code of a code on the wire; a code this version does not know counts as `internal`. */
export function exitCodeOf(code: string): number {
  return isKnown(code) ? errorCodes[code].exit : errorCodes.internal.exit;
}

function isKnown(code: string): code is ErrorCode {
  return Object.hasOwn(errorCodes, code);
}

export function remedyOf(body: ErrorBody): string | undefined {
  const own = body.details["remedy"];
  if (typeof own === "string") return own;
  return isKnown(body.code) ? remedies[body.code] : undefined;
}

/** `verb` is the one that was asked for, if it is known. */
export function describeFailure(error: unknown, verb: string | undefined): Failure {
  const body = toErrorBody(error instanceof CommanderError ? usageError(error, verb) : error);
  return { body, exitCode: exitCodeOf(body.code), remedy: remedyOf(body) };
}

function usageError(error: CommanderError, verb: string | undefined): AppError {
  const takesCommand = verb === "exec" || verb === "run" || verb === "derive";
  const remedy =
    takesCommand && error.code === "commander.unknownOption"
      ? "Put `--` before the command of the guest, so that its options are its own."
      : `See \`forkd ${verb === undefined ? "" : `${verb} `}--help\`.`;
  return new AppError("invalid_request", error.message.replace(/^error: /, ""), {
    details: { remedy },
    cause: error,
  });
}
