/** What the TypeScript SDK adds to a call: the same requests by hand and through the SDK, in turns. */
import { Forkd } from "@forkd/sdk";
import { nodeTransport, Sandbox } from "@forkd/sdk/node";
import { addTimes, inRounds, timed } from "../network/measure.ts";
import type { Rows } from "../rows.ts";
import type { ScratchDaemon } from "../scratch-daemon.ts";
import { RawClient } from "./raw-http.ts";

export const callNames = ["version", "stat", "exec"] as const;
type CallName = (typeof callNames)[number];
type Calls = Readonly<Record<CallName, () => Promise<unknown>>>;

/** The file of `stat`, which every guest has. */
export const statPath = "/etc/passwd";

function rawCalls(client: RawClient, id: string): Calls {
  const at = `/v1/sandboxes/${id}`;
  return {
    version: () => client.json({ path: "/version" }),
    stat: () => client.json({ path: `${at}/files/stat?path=${encodeURIComponent(statPath)}` }),
    exec: async () => {
      const events: unknown[] = [];
      const json = { args: ["true"], timeout_secs: 30, stream: true };
      await client.lines({ method: "POST", path: `${at}/exec`, json }, (line) =>
        events.push(JSON.parse(line)),
      );
      return events;
    },
  };
}

function sdkCalls(forkd: Forkd, sandbox: Sandbox): Calls {
  return {
    version: () => forkd.version(),
    stat: () => sandbox.files.stat(statPath),
    exec: () => sandbox.commands.run(["true"], { check: true }),
  };
}

async function times(count: number, call: () => Promise<unknown>): Promise<number[]> {
  const all: number[] = [];
  for (let index = 0; index < count; index++) all.push(await timed(call));
  return all;
}

export async function measureCalls(
  rows: Rows,
  daemon: ScratchDaemon,
  sandbox: Sandbox,
  sizes: { calls: number },
): Promise<void> {
  using client = new RawClient(daemon.socket);
  // Without the deadlines that other calls of a benchmark have: they are not part of the SDK.
  const forkd = new Forkd({ transport: nodeTransport({ socket: daemon.socket }) });
  const raw = rawCalls(client, sandbox.id);
  const sdk = sdkCalls(forkd, await Sandbox.connect(sandbox.id, { forkd }));
  for (const name of callNames) {
    // The first calls compile code and open connections.
    for (const call of [raw[name], sdk[name]]) await times(Math.min(sizes.calls, 200), call);
    // Call by call in turns: the guest and the host are busier at some moments than at others.
    const found = await inRounds(sizes.calls, {
      raw: () => times(1, raw[name]),
      typescript: () => times(1, sdk[name]),
    });
    for (const [by, all] of Object.entries(found)) addTimes(rows, `call ${name}, ${by}`, all);
  }
}
