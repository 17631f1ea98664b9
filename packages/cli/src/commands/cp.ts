import { plural } from "@forkd/contract/wire";
import type { Command } from "commander";
import { parseCopyEnd, usage, wholeNumber, type CopyEnd } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { copyIn, copyStandardInput } from "../guest/copy-in.ts";
import { copyOut, copyToStandardOutput } from "../guest/copy-out.ts";
import type { CopyReport, CopyRun } from "../guest/copy-report.ts";
import { examples } from "../options/help.ts";
import { formatBytes } from "../terminal/table.ts";

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<source>", "Local path, ID:/path in a sandbox, or - for stdin")
    .argument("<target>", "Local path, ID:/path in a sandbox, or - for stdout")
    .option("--links", "Keep links that lead out of a copied directory")
    .option("--max-bytes <n>", "Copy at most this many bytes from a sandbox", wholeNumber(1))
    .addHelpText(
      "after",
      "\nDirectories are copied with their content, and into the target if that is a directory.\n" +
        examples(
          "forkd cp ./src 3f2a:/srv/",
          "forkd cp 3f2a:/var/log ./logs",
          "forkd cp 3f2a:/etc/hostname -",
        ),
    )
    .action(toAction(cp));
}

type GuestEnd = Extract<CopyEnd, { kind: "guest" }>;

type Options = { links?: true; maxBytes?: number };

async function cp(cli: Cli, options: Options, sourceText: string, targetText: string): Promise<void> {
  const [source, target] = [parseCopyEnd(sourceText), parseCopyEnd(targetText)];
  const guest = guestEnd(source, target);
  const sandbox = await cli.sandbox(guest.id);
  using progress = cli.progress("Copying");
  const report: CopyReport = { files: 0, directories: 0, bytes: 0, skipped: [] };
  const run: CopyRun = {
    sandbox,
    signal: cli.signal,
    progress,
    report,
    keepLinks: options.links === true,
    maxBytes: options.maxBytes,
    skip: (path, reason) => {
      report.skipped.push({ path, reason });
      if (!cli.out.json) cli.out.report(`forkd: skipped "${path}": ${reason}`);
    },
  };
  if (target.kind === "guest") {
    if (source.kind === "host") await copyIn(run, source.path, target.path);
    else await copyStandardInput(run, target.path);
  } else if (target.kind === "host") {
    await copyOut(run, guest.path, target.path);
  } else {
    return copyToStandardOutput(run, guest.path, cli.out);
  }
  progress[Symbol.dispose]();
  if (cli.out.json) cli.out.document(report);
  else cli.out.note(`Copied ${plural(report.files, "file")}, ${formatBytes(report.bytes)}.`);
}

function guestEnd(source: CopyEnd, target: CopyEnd): GuestEnd {
  if (source.kind === "guest" && target.kind === "guest")
    throw usage("One side must be on this host. Copy in two steps");
  if (source.kind === "guest") return source;
  if (target.kind === "guest") return target;
  throw usage("One side must be in a sandbox, as ID:/path");
}
