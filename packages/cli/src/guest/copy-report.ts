/** The state of one copy. */
import type { Sandbox } from "@forkd/sdk";
import type { Progress } from "../terminal/progress.ts";

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
  readonly skip: (path: string, reason: string) => void;
};
