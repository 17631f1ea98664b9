/** Why a kernel cannot be used. Users know it as an interpreter. */
import { constants } from "node:os";
import { advice, AppError, errorMessage } from "@forkd/contract";
import type { AgentExit } from "../wire/replies.ts";
import { KernelGarbage } from "./garbage.ts";

export function notReady(language: string, ms: number): AppError {
  return new AppError("kernel_failed", `The ${language} interpreter was not ready within ${ms} ms`);
}

export function noAnswer(language: string): AppError {
  return new AppError("kernel_failed", `The ${language} interpreter does not answer`);
}

/** `log`: the end of its stderr */
export function exitError(exit: AgentExit, log: readonly string[]): AppError {
  const { code, signal } = exit;
  const how = signal === undefined ? `exited with code ${code ?? 0}` : `was killed by ${signalName(signal)}`;
  return new AppError("kernel_failed", `The interpreter ${how}`, {
    details: {
      log,
      ...(signal === undefined ? { code: code ?? 0 } : { signal }),
      timed_out: exit.timedOut,
      user_us: exit.userUs,
      system_us: exit.systemUs,
      peak_rss_kib: exit.peakRssKib,
    },
  });
}

export function signalName(signal: number): string {
  return Object.entries(constants.signals).find(([, value]) => value === signal)?.[0] ?? `signal ${signal}`;
}

export function connectionError(error: unknown): AppError {
  if (error instanceof AppError && error.code !== "guest_refused") return error;
  const why = errorMessage(error);
  return new AppError("kernel_failed", `Cannot use the interpreter: ${why}`, { cause: error });
}

export function tooOld(action: string): AppError {
  return new AppError("unsupported", `Cannot ${action}: the interpreter of this snapshot is too old`, {
    remedy: advice("Build the snapshot again."),
  });
}

export function tooLarge(action: string, why: string): AppError {
  return new AppError("guest_refused", `Cannot ${action}: ${why}`, { details: { errno: "EOVERFLOW" } });
}

/** Rethrows errors other than KernelGarbage. */
export function garbage(error: unknown): AppError {
  if (!(error instanceof KernelGarbage)) throw error;
  return new AppError("kernel_failed", `The interpreter sent garbage: ${error.message}`, { cause: error });
}

/** A message that cannot be encoded is the fault of the request. */
export function encoded(encode: () => Buffer): Buffer {
  try {
    return encode();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new AppError("invalid_request", error.message, { cause: error });
  }
}
