import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";
import { formatBytes } from "../terminal/table.ts";
import { TransferLine } from "../hub/transfer-line.ts";

type Options = {
  tag?: string;
  force?: true;
  rebuild?: true;
  insecureSkipSignature?: true;
  plainHttp?: true;
};

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<reference>", "HOST/REPOSITORY[:TAG][@DIGEST], or a URL of an archive")
    .option("--tag <tag>", "Name the snapshot (default: name of the repository)")
    .option("--force", "Replace a snapshot that has this tag")
    .option("--rebuild", "Build it from its recipe if this host cannot fork it")
    .option("--insecure-skip-signature", "Look for no signature, whatever is required")
    .option("--plain-http", "Connect without TLS")
    .addHelpText(
      "after",
      "\nOnly what this host does not have is fetched. A pull that was interrupted continues where it ended.\n" +
        examples(
          "forkd pull ghcr.io/team/python-numpy:v1",
          "forkd pull ghcr.io/team/python-numpy:v1 --tag numpy-v1",
          "forkd pull ghcr.io/team/python-numpy:v1 --rebuild",
          "forkd pull https://bucket.example.com/work.tar",
        ),
    )
    .action(toAction(pull));
}

async function pull(cli: Cli, options: Options, reference: string): Promise<void> {
  const { authFor } = await import("../hub/registry-access.ts");
  const forkd = await cli.daemon();
  const auth = await authFor(forkd, reference, cli.signal);
  using progress = cli.progress(`Pulling ${reference.replace(/\?.*/s, "")}`);
  const line = new TransferLine();
  const pulled = await forkd.hub.pull(reference, {
    auth,
    plainHttp: options.plainHttp,
    tag: options.tag,
    force: options.force,
    rebuild: options.rebuild,
    insecureSkipSignature: options.insecureSkipSignature,
    signal: cli.signal,
    onProgress: (event) => {
      if (cli.out.json && !cli.out.quiet) void cli.out.event(wireOf(event));
      const text = line.text(event);
      if (progress.isLive) progress.update(text);
      else progress.sample(text);
    },
  });
  progress[Symbol.dispose]();
  if (cli.out.json) return cli.out.event({ type: "pulled", pull: wireOf(pulled) });
  const { snapshot, movedBytes, durationMs, snapshots, trust, rebuilt } = pulled;
  cli.out.line(snapshot.tag);
  const others = snapshots
    .filter(({ tag, existed }) => !existed && tag !== snapshot.tag)
    .map(({ tag }) => tag);
  const layers = others.length === 0 ? "" : ` Its parents are here as ${others.join(", ")}.`;
  const isArchive = reference.includes("://");
  if (trust.outcome === "signed") cli.out.note(`${trust.text}.`);
  else if (trust.policy !== "off")
    cli.out.report(`Warning: ${trust.text}.${isArchive ? "" : " Run `forkd trust pin` to require one."}`);
  if (rebuilt)
    cli.out.note(`Built ${snapshot.tag} from its recipe, because this host cannot fork the original.`);
  cli.out.note(
    `Pulled ${snapshot.tag} in ${(durationMs / 1000).toFixed(1)} s: fetched ${formatBytes(movedBytes)}.${layers}`,
  );
  if (!snapshot.bootable) cli.out.report(`It cannot be forked here: ${snapshot.warning ?? "unknown reason"}`);
}
