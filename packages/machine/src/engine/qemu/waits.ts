/** Waits for a VMM that end with its exit, which says why it did not answer. */
import { AppError } from "@forkd/contract";
import { within } from "@forkd/base";
import { vmmDeadlines } from "../../deadlines.ts";
import type { ExitReason } from "../engine.ts";
import type { VmmProcess } from "../process.ts";
import type { QmpClient } from "./qmp.ts";

/** The sockets of a process close shortly before its exit is known. */
const exitGraceMs = 200;

export type Execute = (command: string, args?: Record<string, unknown>) => Promise<unknown>;

export function executeIn(process: VmmProcess, qmp: QmpClient): Execute {
  return (command, args) => orExit(process, qmp.execute(command, args));
}

/** Ends a process that has missed a deadline: nothing else brings its sandbox back to a known state. */
export function endWhenLate(process: VmmProcess, qmp: QmpClient): void {
  qmp.onLate((text) => {
    process.setCause(text);
    process.kill();
  });
}

/**
 * Waits for `work`, which fails when the control socket closes, the first sign of an exit. Then waits for the
 * exit, which says why. Not Promise.race() with the exit: that promise would keep every waiter in memory
 * until the exit.
 */
export async function orExit<T>(process: VmmProcess, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    const isExplained =
      error instanceof AppError && (error.code !== "engine_failed" || "log" in error.details);
    const known = isExplained ? undefined : await within(process.exited, exitGraceMs);
    const isEnding = !isExplained && process.isEnding;
    const reason = known ?? (isEnding ? await within(process.exited, vmmDeadlines.exitMs) : undefined);
    throw reason ? exitError(process, reason) : error;
  }
}

function exitError(process: VmmProcess, reason: ExitReason): AppError {
  const lastLine = reason.log.split("\n").at(-1) ?? "";
  return new AppError("engine_failed", `QEMU ended: ${reason.text}${lastLine ? `: ${lastLine}` : ""}`, {
    details: { reason: reason.text, log: reason.log, console: reason.console, argv: process.argv },
  });
}
