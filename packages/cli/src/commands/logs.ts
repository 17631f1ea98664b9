import type { Command } from "commander";
import { wholeNumber } from "../arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../help.ts";

type Options = { follow?: true; tail?: number };

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<id>", "sandbox or workspace; a unique beginning of an id is enough")
    .option("-f, --follow", "go on as the guest writes")
    .option("--tail <lines>", "start with the last lines", wholeNumber(1))
    .addHelpText("after", examples("forkd logs 3f2a --tail 20", "forkd logs -f 3f2a"))
    .action(toAction(logs));
}

async function logs(cli: Cli, options: Options, prefix: string): Promise<void> {
  const sandbox = await cli.sandbox(prefix);
  const decoder = new TextDecoder();
  for await (const chunk of sandbox.logs({ ...options, signal: cli.signal })) {
    if (cli.out.json) await cli.out.event({ type: "console", data: decoder.decode(chunk, { stream: true }) });
    else await cli.out.bytes(chunk);
  }
}
