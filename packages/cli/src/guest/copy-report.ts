/** The state of one copy. */
import { advice, AppError } from "@forkd/contract/wire";
import type { Sandbox } from "@forkd/sdk";
import type { Progress } from "../terminal/progress.ts";
import { formatBytes } from "../terminal/table.ts";

export type CopyReport = {
  files: number;
  directories: number;
  bytes: number;
  skipped: { path: string; reason: string }[];
};

export type CopyRun = {
  readonly sandbox: Sandbox;
  readonly signal: AbortSignal;
  readonly progress: Progress;
  readonly report: CopyReport;
  /** Create links that lead out of the copied directory too. */
  readonly keepLinks: boolean;
  /** most bytes to copy from the guest; default: from what the guest reports */
  readonly maxBytes: number | undefined;
  readonly skip: (path: string, reason: string) => void;
};

export function addFile(run: CopyRun, total: number): void {
  run.report.files += 1;
  run.progress.sample(
    `Copying: ${run.report.files} of ${total} files, ${formatBytes(run.report.bytes)} copied`,
  );
}

/** Counts bytes before they are written. Throws once they are more than `max`. */
export function addBytes(run: CopyRun, bytes: number, max: number): void {
  run.report.bytes += bytes;
  if (run.report.bytes <= max) return;
  throw new AppError(
    "body_too_large",
    `Cannot copy more than ${formatBytes(max)}: the guest sends more than that`,
    { details: { max_bytes: max }, remedy: advice("Allow more with --max-bytes.") },
  );
}
