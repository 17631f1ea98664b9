/** Builds a snapshot and shows the progress; shared by `build`, `snapshot` and `quickstart`. */
import type { RequestOf, SnapshotInfo } from "@forkd/contract";
import type { Cli } from "../cli.ts";
import { formatBytes } from "../terminal/table.ts";

/** With --json it prints every event of the build, the snapshot last. */
export async function buildSnapshot(cli: Cli, request: RequestOf<"createSnapshot">): Promise<SnapshotInfo> {
  const forkd = await cli.daemon();
  using progress = cli.progress(`Building ${request.tag}`);
  const startedAt = performance.now();
  const snapshot = await forkd.snapshots.build(request, {
    signal: cli.signal,
    onProgress: (event) => {
      progress.update(`${request.tag}: ${event.message}`);
      if (cli.out.json && !cli.out.quiet) void cli.out.event(event);
    },
  });
  progress[Symbol.dispose]();
  if (cli.out.json) {
    await cli.out.event({ type: "snapshot", snapshot });
  } else {
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
    cli.out.note(
      `Built ${snapshot.tag} in ${seconds} s: ${formatBytes(snapshot.total_bytes ?? snapshot.physical_bytes)} on disk, ${snapshot.accelerator}.`,
    );
  }
  return snapshot;
}
