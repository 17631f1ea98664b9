/**
 * A warm interpreter that can take an eval. One that ended is started again, with the warm-up of the snapshot
 * and without the state it had; the answers of the evals that wait for it report that.
 */
import { AppError, type EvalRequest, type Language } from "@forkd/contract";
import { withDeadline } from "@forkd/base";
import type { WarmKernel } from "../launch/warm-kernel.ts";
import { startAgain } from "./restart-kernel.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";

export type KernelRequest = Pick<EvalRequest, "language" | "timeout_secs">;

export type ReadyKernel = {
  /** the machine it runs in */
  readonly machine: SandboxMachine;
  readonly kernel: WarmKernel;
  /** what is left of the eval's time; 0 = no limit */
  readonly leftMs: number;
};

/**
 * Waits for a kernel that is being started or adopted, at most for the time of the eval and while its caller
 * is there.
 */
export async function readyKernel(
  sandbox: Sandbox,
  request: KernelRequest,
  signal?: AbortSignal,
): Promise<ReadyKernel> {
  const startedAt = performance.now();
  const limitMs = request.timeout_secs * 1000;
  const { current: machine } = sandbox;
  const kernel = usableKernel(machine, request.language);
  const inTime = limitMs === 0 ? kernel : withDeadline(kernel, limitMs, () => notReady(request));
  const found = await unlessAborted(inTime, signal);
  return {
    machine,
    kernel: found,
    leftMs: limitMs === 0 ? 0 : Math.max(1, limitMs - (performance.now() - startedAt)),
  };
}

async function usableKernel(machine: SandboxMachine, language: Language | undefined): Promise<WarmKernel> {
  const { restarts, languages } = machine;
  const wanted = language ?? languages[0];
  const restarting = wanted && restarts.get(wanted);
  if (restarting) return restarting;
  const kernel = machine.kernel(language);
  if (!kernel.client.dead) return kernel;
  return startAgain(machine, kernel);
}

function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  return new Promise((resolve, reject) => {
    const gone = () =>
      reject(new AppError("cancelled", "Eval was cancelled before it began", { cause: signal?.reason }));
    if (signal?.aborted) gone();
    signal?.addEventListener("abort", gone, { once: true });
    work.then(resolve, reject).finally(() => signal?.removeEventListener("abort", gone));
  });
}

function notReady({ timeout_secs: seconds }: KernelRequest): AppError {
  return new AppError(
    "deadline_exceeded",
    `Cannot evaluate: the interpreter is being started again and was not ready in ${seconds} s`,
    { details: { timeout_secs: seconds }, remedy: { action: "retry_later" } },
  );
}
