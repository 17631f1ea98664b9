/** Many commands that print at the same time: does every line arrive, and in order? */
import { outputBytes, type Sandbox } from "@forkd/sdk";
import { deadline, limits } from "../deadline.ts";
import { timed } from "../network/measure.ts";
import type { Rows } from "../rows.ts";
import type { ScratchDaemon } from "../scratch-daemon.ts";
import { RawClient } from "./raw-http.ts";

type Sizes = { commands: number; lines: number; rounds: number };

/** Prints its number and that of the line; each line is one write. */
function script(command: number, lines: number): string {
  return `i=0; while [ $i -lt ${lines} ]; do echo "${command} $i"; i=$((i + 1)); done`;
}

/** Counts lines as they arrive. */
class Counter {
  disordered = 0;
  #next = 0;
  #rest = "";
  readonly #command: number;
  readonly #decoder = new TextDecoder();

  constructor(command: number) {
    this.#command = command;
  }

  add(chunk: Uint8Array): void {
    const parts = (this.#rest + this.#decoder.decode(chunk, { stream: true })).split("\n");
    this.#rest = parts.pop() ?? "";
    for (const line of parts) if (line !== `${this.#command} ${this.#next++}`) this.disordered++;
  }

  get seen(): number {
    return this.#next;
  }
}

type Reader = (sandbox: Sandbox, script: string, counter: Counter) => Promise<void>;

export async function measureStreams(
  rows: Rows,
  daemon: ScratchDaemon,
  sandboxes: readonly Sandbox[],
  { commands, lines, rounds }: Sizes,
): Promise<void> {
  using client = new RawClient(daemon.socket, commands);
  const readers: Readonly<Record<string, Reader>> = {
    raw: async (sandbox, text, counter) => {
      const json = { args: ["sh", "-c", text], timeout_secs: 0, stream: true };
      await client.lines({ method: "POST", path: `/v1/sandboxes/${sandbox.id}/exec`, json }, (line) => {
        const event = JSON.parse(line) as { type: string; data: string; encoding: "utf8" | "base64" };
        if (event.type === "stdout") counter.add(Buffer.from(event.data, event.encoding));
      });
    },
    typescript: async (sandbox, text, counter) => {
      for await (const event of sandbox.commands.run(["sh", "-c", text], { timeoutMs: 0 }))
        if (event.type === "stdout") counter.add(outputBytes(event));
    },
  };
  for (let round = 0; round < rounds; round++) {
    for (const [by, read] of Object.entries(readers)) {
      const counters = Array.from({ length: commands }, (_, index) => new Counter(index));
      const all = () =>
        Promise.all(
          counters.map((counter, index) => {
            const sandbox = sandboxes[index % sandboxes.length];
            if (!sandbox) throw new Error("There is no sandbox");
            return read(sandbox, script(index, lines), counter);
          }),
        );
      const wallMs = await timed(() => deadline(`${commands} commands to end`, limits.call, all()));
      const seen = counters.reduce((sum, counter) => sum + counter.seen, 0);
      const disordered = counters.reduce((sum, counter) => sum + counter.disordered, 0);
      rows.add(
        {
          case: `streams, ${by}`,
          n: commands,
          wall_ms: wallMs,
          lines: seen,
          lost: commands * lines - seen,
          disordered,
        },
        `${seen} lines`,
      );
    }
  }
}
