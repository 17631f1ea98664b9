/** Errors of calls to a kernel. */
import { AppError } from "@forkd/contract";
import { KernelGarbage } from "./messages.ts";

export function tooLarge(action: string, why: string): AppError {
  return new AppError("guest_refused", `Cannot ${action}: ${why}`, { details: { errno: "EOVERFLOW" } });
}

/** Rethrows errors other than KernelGarbage. */
export function garbage(error: unknown): AppError {
  if (!(error instanceof KernelGarbage)) throw error;
  return new AppError("kernel_failed", `Kernel sent garbage: ${error.message}`, {
    remedy: { action: "retry_later" },
    cause: error,
  });
}
