/** The guest in which a step of a recipe runs: commands and files of the build itself. */
import { createReadStream } from "node:fs";
import { removeTree } from "@forkd/base";
import { advice, AppError } from "@forkd/contract";
import type { ImageLease, LayerStep } from "@forkd/image";
import type { AgentClient } from "@forkd/machine";
import { runInGuest } from "../run-in-guest.ts";
import { startFailure, stepFailure } from "../step-output.ts";

export const runTimeoutMs = 60 * 60_000;
const shortTimeoutMs = 10 * 60_000;

/** A guest in which a step runs, and what it may use. */
export type StepGuest = {
  agent: AgentClient;
  /** cache of images */
  imageDir: string;
  step: LayerStep;
  /** an existing directory of the host for files of the step */
  work: string;
  /** variables by which programs trust the certificates of the installation */
  trust: Readonly<Record<string, string>>;
  signal: AbortSignal;
  lease: ImageLease;
  /** what is done at the moment, or a line of output */
  report: (line: string) => void;
};

/** Runs a program of the build itself as root. Throws `invalid_recipe` if it fails; returns what it printed. */
export async function asRoot(
  { agent, step, report }: Pick<StepGuest, "agent" | "report" | "step">,
  argv: readonly string[],
  options: { env?: Record<string, string>; what: string; quiet?: boolean },
): Promise<string> {
  const { env = {}, what, quiet = false } = options;
  const result = await runInGuest(agent, {
    argv,
    env: { ...step.state.env, ...env },
    timeoutMs: runTimeoutMs,
    ...(!quiet && { onLine: report }),
  }).catch((error: unknown): never => {
    throw startFailure(argv, error);
  });
  if (result.exitCode === 0) return result.output;
  throw commandFailure(`${what} failed with exit code ${result.exitCode}`, result);
}

const noNetwork =
  /Temporary failure in name resolution|Could not resolve|Network is unreachable|EAI_AGAIN|ENETUNREACH|NameResolutionError/;
const noSpace = /No space left on device|ENOSPC/;

/** A fault of the recipe, with what to do about it where the output says so. */
export function commandFailure(
  message: string,
  { exitCode, output }: { exitCode: number; output: string },
): AppError {
  const failure = stepFailure(message, output, { details: { exit_code: exitCode } });
  const remedy = noSpace.test(output)
    ? "Raise disk_mib."
    : noNetwork.test(output)
      ? "The guest has no network during a build. Install packages with pip, npm or apt of the recipe, and copy files."
      : undefined;
  if (remedy === undefined) return failure;
  const { code, details } = failure;
  return new AppError(code, failure.message, { details: { ...details }, remedy: advice(remedy) });
}

/** A directory of the guest that is a link, like /bin, stays one and keeps its mode. */
const unpackScript = `
mkdir -p "$1" || exit
if tar --help 2>&1 | grep -q keep-directory-symlink; then
  exec tar -x --keep-directory-symlink --no-overwrite-dir -f - -C "$1"
fi
exec tar -x -f - -C "$1"
`;

/** Unpacks an archive of the host in the guest, and removes it. */
export async function unpack(
  { agent, report }: Pick<StepGuest, "agent" | "report">,
  archive: string,
  to: string,
): Promise<void> {
  report("copying files into the guest");
  const argv = ["/bin/sh", "-c", unpackScript, "sh", to];
  const input = createReadStream(archive, { highWaterMark: 256 * 1024 });
  const result = await runInGuest(agent, { argv, env: {}, timeoutMs: shortTimeoutMs, input }).catch(
    (error: unknown): never => {
      throw startFailure(argv.slice(0, 1), error);
    },
  );
  await removeTree(archive);
  if (result.exitCode !== 0)
    throw stepFailure(`Cannot unpack files in the guest: exit code ${result.exitCode}`, result.output);
}
