/** Contexts of evals: list, make, restart, drop. */
import { advice, AppError, type EvalContext, type ParsedOf } from "@forkd/contract";
import { GuestProgress } from "@forkd/machine";
import type { Context } from "../context.ts";
import type { WarmKernel } from "../launch/warm-kernel.ts";
import type { Runtime } from "../runtime.ts";
import { intoGuest } from "../sandbox/into-guest.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

export function listContexts(
  runtime: Runtime,
  { id }: { id: string },
  context: Context,
): Promise<EvalContext[]> {
  return intoGuest(runtime, { ...context, id }, async (sandbox) => {
    const kernels = [...sandbox.kernels.values()];
    const all = await Promise.all(
      kernels.map(async ({ client, language }) =>
        (await inTurn(sandbox, "list contexts", client.contexts())).map((each) => ({ ...each, language })),
      ),
    );
    return all.flat();
  });
}

export function createContext(
  runtime: Runtime,
  { id, name, language, cwd, env }: ParsedOf<"createContext">,
  context: Context,
): Promise<EvalContext> {
  return intoGuest(runtime, { ...context, id }, async (sandbox) => {
    const kernel = sandbox.kernel(language);
    const made = kernel.client.newContext(name, { env, ...(cwd !== undefined && { cwd }) });
    try {
      return toContext(kernel, name, await inTurn(sandbox, "make the context", made));
    } catch (error) {
      throw explained(error, name);
    }
  });
}

/** Kernels name the reason in the first word of a refusal. */
function explained(error: unknown, name: string): unknown {
  if (!(error instanceof AppError) || error.code !== "guest_refused") return error;
  const { text } = error.details;
  if (typeof text !== "string") return error;
  if (text.startsWith("unsupported"))
    return new AppError(
      "unsupported",
      `Cannot restart context "${name}": ${text.slice("unsupported: ".length, 300)}`,
      {
        details: { name },
        remedy: advice("Use a context with another name, which can be restarted."),
        cause: error,
      },
    );
  if (text.startsWith("exists"))
    return new AppError("already_exists", `Cannot make context "${name}": it exists`, {
      details: { name },
      cause: error,
    });
  if (text.startsWith("cwd"))
    return new AppError(
      "file_not_found",
      `Cannot make context "${name}": ${text.slice("cwd: ".length, 300)}`,
      {
        details: { name },
        cause: error,
      },
    );
  return error;
}

export function restartContext(
  runtime: Runtime,
  { id, name, language }: ParsedOf<"restartContext">,
  context: Context,
): Promise<EvalContext> {
  return intoGuest(runtime, { ...context, id }, async (sandbox) => {
    const kernel = sandbox.kernel(language);
    const made = kernel.client.newContext(name, { replace: true });
    try {
      return toContext(kernel, name, await inTurn(sandbox, "restart the context", made));
    } catch (error) {
      throw explained(error, name);
    }
  });
}

function toContext({ language }: WarmKernel, name: string, cwd: string): EvalContext {
  return { name, language, cwd };
}

export function dropContext(
  runtime: Runtime,
  { id, name, language }: ParsedOf<"dropContext">,
  context: Context,
): Promise<void> {
  return intoGuest(runtime, { ...context, id }, async (sandbox) => {
    if (name === "default")
      throw new AppError("invalid_request", 'Cannot drop the context "default": it holds what warm-up made');
    await inTurn(sandbox, "drop the context", sandbox.kernel(language).client.dropContext(name));
  });
}

/** The interpreter answers when the evals before are done, so only a silent guest is given up. */
function inTurn<T>({ agent }: Sandbox, action: string, answer: Promise<T>): Promise<T> {
  return new GuestProgress(agent, action).next(answer);
}
