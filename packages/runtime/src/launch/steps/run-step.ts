/** One step of a recipe in a running guest: a command, files, or packages that the host has downloaded. */
import { packFiles } from "@forkd/image";
import { makeWorkdir } from "../make-workdir.ts";
import { runInGuest } from "../run-in-guest.ts";
import { startFailure } from "../step-output.ts";
import { installDebian, installNode, installPython } from "./install-packages.ts";
import { commandFailure, runTimeoutMs, unpack, type StepGuest } from "./step-guest.ts";

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
  throw commandFailure(`exit code ${result.exitCode}`, result);
}
