import { plural } from "@forkd/contract/wire";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";

type Options = { listen?: string };

export function define(command: Command, toAction: ToAction): void {
  command
    .option("--listen <host:port>", "Listen on this address for HTTP, or off")
    .addHelpText("after", examples("forkd up", "forkd up --listen 127.0.0.1:8889"))
    .action(toAction(up));
}

async function up(cli: Cli, { listen }: Options): Promise<void> {
  const [{ findDaemon }, { findAddress, startDaemon }] = await Promise.all([
    import("../daemon/client.ts"),
    import("../daemon/start.ts"),
  ]);
  const running = await findDaemon(cli.signal);
  const address = running
    ? await findAddress(cli, (await running.version({ signal: cli.signal })).pid)
    : await startDaemon(cli, listen === undefined ? [] : ["--listen", listen]);
  const forkd = running ?? (await findDaemon(cli.signal));
  const sandboxes = (await forkd?.status({ signal: cli.signal }))?.sandboxes ?? 0;
  if (cli.out.json) return cli.out.document({ ...address, started: running === undefined, sandboxes });
  if (running)
    cli.out.note(
      `The daemon is already running${listen === undefined ? "" : "; its address does not change"}.`,
    );
  else if (sandboxes > 0) cli.out.note(`Adopted ${plural(sandboxes, "sandbox")} of the last daemon.`);
  cli.out.line(`pid     ${address.pid}`);
  cli.out.line(`socket  ${address.socket}`);
  cli.out.line(`url     ${address.url ?? "-"}`);
}
