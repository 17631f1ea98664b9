import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { wholeNumber } from "../options/arguments.ts";
import { examples } from "../options/help.ts";
import { formatBytes } from "../terminal/table.ts";
import { TransferLine } from "../hub/transfer-line.ts";

type Options = { level?: number; plainHttp?: true };

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<tag>", "Snapshot")
    .argument("<reference>", "HOST/REPOSITORY[:TAG], or a URL that accepts PUT")
    .option("--level <level>", "Compress with this level (default: 6)", wholeNumber(1, 19))
    .option("--plain-http", "Connect without TLS")
    .addHelpText(
      "after",
      "\nThe snapshot is sent with the chain that it needs. What the registry has is not sent again.\n" +
        examples(
          "forkd push python-numpy ghcr.io/team/python-numpy:v1",
          "forkd push work 'https://bucket.example.com/work.tar?signature=…'",
        ),
    )
    .action(toAction(push));
}

async function push(cli: Cli, options: Options, tag: string, reference: string): Promise<void> {
  const { authFor } = await import("../hub/registry-access.ts");
  const forkd = await cli.daemon();
  const auth = await authFor(forkd, reference, cli.signal);
  using progress = cli.progress(`Pushing ${tag}`);
  const line = new TransferLine();
  const pushed = await forkd.hub.push(tag, reference, {
    auth,
    plainHttp: options.plainHttp,
    level: options.level,
    signal: cli.signal,
    onProgress: (event) => {
      if (cli.out.json && !cli.out.quiet) void cli.out.event(wireOf(event));
      const text = line.text(event);
      if (progress.isLive) progress.update(text);
      else progress.sample(text);
    },
  });
  progress[Symbol.dispose]();
  if (cli.out.json) return cli.out.event({ type: "pushed", push: wireOf(pushed) });
  cli.out.line(pushed.digest === undefined ? pushed.reference : `${pushed.reference}@${pushed.digest}`);
  const { totalBytes, movedBytes, durationMs } = pushed;
  cli.out.note(
    `Pushed ${tag} in ${(durationMs / 1000).toFixed(1)} s: sent ${formatBytes(movedBytes)} of ${formatBytes(totalBytes)}.`,
  );
}
