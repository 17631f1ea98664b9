/** Builds a snapshot and shows the progress; shared by `build`, `snapshot` and `quickstart`. */
import { wireOf, type BuildRequest, type BuildStep, type SnapshotInfo } from "@forkd/sdk";
import type { Cli } from "../cli.ts";
import { clean, formatBytes } from "../terminal/table.ts";

const stepWidth = 9;
const secondsWidth = 8;

/** With --json it prints every event of the build, the snapshot last. */
export async function buildSnapshot(cli: Cli, request: BuildRequest): Promise<SnapshotInfo> {
  const forkd = await cli.daemon();
  using progress = cli.progress(`Building ${request.tag}`);
  const startedAt = performance.now();
  const printEvent = (event: object) => {
    if (cli.out.json && !cli.out.quiet) void cli.out.event(wireOf(event));
  };
  let step = "";
  const snapshot = await forkd.snapshots.build(request, {
    signal: cli.signal,
    onProgress: (event) => {
      // Without a terminal a line per step is enough: the line at its end has the counts.
      if (progress.isLive || event.step !== step) progress.update(`${request.tag}: ${event.message}`);
      step = event.step;
      printEvent(event);
    },
    onStep: (event) => {
      if (!cli.out.json) cli.out.note(stepLine(event));
      printEvent(event);
    },
  });
  progress[Symbol.dispose]();
  if (cli.out.json) {
    await cli.out.event({ type: "snapshot", snapshot: wireOf(snapshot) });
  } else {
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
    cli.out.note(
      `Built ${snapshot.tag} in ${seconds} s: ${formatBytes(snapshot.totalBytes ?? snapshot.physicalBytes)} on disk, ${snapshot.accelerator}.`,
    );
  }
  return snapshot;
}

/** `  install     64.1 s  set up 62 of 62 packages` */
function stepLine({ step, message, durationMs: ms }: BuildStep): string {
  const seconds = `${(ms / 1000).toFixed(1)} s`;
  // The message may contain a command or a file name of the recipe.
  return clean(`  ${step.padEnd(stepWidth)} ${seconds.padStart(secondsWidth)}  ${message}`);
}
