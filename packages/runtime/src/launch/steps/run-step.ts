/** One step of a recipe in a running guest: a command, files, or packages that the host has downloaded. */
import { advice, AppError } from "@forkd/contract";
import { packFiles } from "@forkd/image";
import { makeWorkdir } from "../make-workdir.ts";
import { runInGuest } from "../run-in-guest.ts";
import { startFailure, stepFailure } from "../step-output.ts";
import { installDebian, installNode, installPython } from "./install-packages.ts";
import { runTimeoutMs, unpack, type StepGuest } from "./step-guest.ts";

const noNetwork =
  /Temporary failure in name resolution|Could not resolve|Network is unreachable|EAI_AGAIN|ENETUNREACH|NameResolutionError/;

export async function runStep(guest: StepGuest): Promise<void> {
  const { step } = guest.step;
  switch (step.kind) {
    case "run":
      return runCommand(guest, step.argv);
    case "copy": {
      const { work, signal } = guest;
      return await unpack(guest, await packFiles(step.files, { to: step.to, work, signal }), "/");
    }
    case "pip":
      return await installPython(guest, step);
    case "npm":
      return await installNode(guest, step);
    case "apt":
      return await installDebian(guest, step);
  }
}

async function runCommand(guest: StepGuest, argv: readonly string[]): Promise<void> {
  const { agent, trust, report } = guest;
  const { env, user, workdir } = guest.step.state;
  await makeWorkdir(agent, workdir);
  const where = { cwd: workdir, user };
  const command = { argv, env: { ...trust, ...env }, timeoutMs: runTimeoutMs, onLine: report, ...where };
  const result = await runInGuest(agent, command).catch((error: unknown): never => {
    throw startFailure(argv, error);
  });
  if (result.exitCode === 0) return;
  const failure = stepFailure(`exit code ${result.exitCode}`, result.output, {
    details: { argv: [...argv], exit_code: result.exitCode },
  });
  if (!noNetwork.test(result.output)) throw failure;
  throw new AppError(failure.code, failure.message, {
    details: { ...failure.details },
    remedy: advice(
      "The guest has no network during a build. Install packages with pip, npm or apt of the recipe, and copy files.",
    ),
  });
}
