/**
 * Watches the list of sandboxes: a table that is redrawn on a terminal, otherwise a line per change, with
 * --json one JSON object per line. Events update the list; it is read again when events may be missing.
 */
import type { ForkdEvent, SandboxInfo } from "@forkd/contract";
import { wireOf, type Forkd } from "@forkd/sdk";
import type { Cli } from "../cli.ts";
import { liveScreen } from "../terminal/live-screen.ts";
import { reasonColumns, sandboxColumns } from "./sandbox-table.ts";
import { clean } from "../terminal/table.ts";

type Watched = {
  readonly filter: { tag?: string; label?: string[]; state?: SandboxInfo["state"]; owner?: string };
  readonly isShown: (info: SandboxInfo) => boolean;
};
/** Ages in the table change without an event. */
const redrawMs = 1000;

export async function watchSandboxes(cli: Cli, forkd: Forkd, { filter, isShown }: Watched): Promise<void> {
  const { tag, label, state, owner } = filter;
  const { signal } = cli;
  const known = new Map<string, SandboxInfo>();
  const isListed = (info: SandboxInfo) =>
    isShown(info) &&
    (tag === undefined || info.snapshot_tag === tag) &&
    (state === undefined || info.state === state) &&
    (owner === undefined || info.owner === owner);
  const readAgain = async () => {
    const found = wireOf<SandboxInfo[]>(await forkd.sandboxes.list(filter, { signal }).all());
    known.clear();
    for (const info of found.filter(isListed)) known.set(info.id, info);
  };
  const draw = () => {
    const shown = [...known.values()];
    return cli.out.table([...sandboxColumns(), ...reasonColumns(shown)], shown);
  };
  const isLive = process.stdout.isTTY && !cli.out.json && !cli.environment.dumbTerminal;
  using screen = isLive
    ? liveScreen({ render: draw, everyMs: redrawMs, interrupts: cli.interrupts })
    : undefined;
  // An unknown id makes the first event `reset`, so that the stream is open before the list is read.
  const events = forkd.events({ types: ["sandbox.*"], labels: label, signal, after: `${"0".repeat(12)}-0` });
  for await (const each of events) {
    const event = wireOf<ForkdEvent>(each);
    if (event.type === "reset") {
      await readAgain();
      if (!isLive) for (const info of known.values()) await report(cli, "listed", info);
    } else if (event.sandbox) {
      const info = event.sandbox;
      const wasListed = known.has(info.id);
      if (isListed(info) && !isGone(event)) known.set(info.id, info);
      else known.delete(info.id);
      if (!isLive && (wasListed || known.has(info.id))) await report(cli, event.type, info, event);
    }
    screen?.draw();
  }
}

/** Lists do not contain killed and expired sandboxes. */
function isGone({ type }: ForkdEvent): boolean {
  return type === "sandbox.killed" || type === "sandbox.expired";
}

async function report(cli: Cli, change: string, info: SandboxInfo, event?: ForkdEvent): Promise<void> {
  if (cli.out.json)
    return cli.out.event({ change, at_unix: event?.at_unix ?? Date.now() / 1000, sandbox: info });
  const reason = event?.reason === undefined ? "" : `  ${clean(event.reason)}`;
  cli.out.line(
    cli.out.quiet
      ? info.id
      : `${change.replace("sandbox.", "")}  ${info.id}  ${clean(info.snapshot_tag)}  ${info.state}${reason}`,
  );
}
