/** Branches a sandbox and prints the timings; shared by `branch` and `snapshot --from-sandbox`. */
import type { BranchResult } from "@forkd/contract";
import { wireOf, type BranchOptions } from "@forkd/sdk";
import { showChildren } from "../options/children.ts";
import type { Cli } from "../cli.ts";
import { formatBytes } from "../terminal/table.ts";

/** Prints the tag and the children to stdout. Resolves to the exit code. */
export async function branchSandbox(cli: Cli, prefix: string, options: BranchOptions): Promise<number> {
  const sandbox = await cli.sandbox(prefix);
  using progress = cli.progress(`Branching ${sandbox.id}`);
  const result = wireOf<BranchResult>(await sandbox.branch({ ...options, signal: cli.signal }));
  progress[Symbol.dispose]();
  if (cli.out.json) {
    cli.out.document(result);
  } else {
    cli.out.line(result.tag);
    cli.out.note(summarize(result));
  }
  return showChildren(cli, result.children);
}

function summarize(result: BranchResult): string {
  const stall = result.stall_ms === undefined ? "" : ` (the guest lost ${milliseconds(result.stall_ms)})`;
  const end =
    result.total_ms === undefined
      ? "still being written; run `forkd images` to see when it is ready"
      : `${milliseconds(result.total_ms)} in total`;
  return (
    `Branched ${result.branched_from}: paused ${milliseconds(result.pause_ms)}${stall}, ` +
    `${formatBytes(result.diff_logical_bytes)} diverged, ${end}.`
  );
}

function milliseconds(ms: number): string {
  return `${ms.toFixed(1)} ms`;
}
