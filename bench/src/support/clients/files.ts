/** One large file into a guest and out of it: by the agent's protocol alone, by HTTP, through the SDK. */
import { readFile, writeFile } from "@forkd/machine";
import type { Sandbox } from "@forkd/sdk";
import { withBareGuest } from "../floor.ts";
import { inRounds, timed } from "../network/measure.ts";
import type { Rows } from "../rows.ts";
import type { ScratchDaemon } from "../scratch-daemon.ts";
import { RawClient } from "./raw-http.ts";

/** In memory: the disk of the guest is not measured. */
const path = "/dev/shm/clients";
export const directions = ["up", "down"] as const;
export const ways = ["agent channel", "raw", "typescript"] as const;

type Way = Readonly<Record<(typeof directions)[number], () => Promise<unknown>>>;

/** Reads to the end and checks how much there was. */
async function drain(chunks: AsyncIterable<Uint8Array>, bytes: number): Promise<void> {
  let seen = 0;
  for await (const chunk of chunks) seen += chunk.byteLength;
  if (seen !== bytes) throw new Error(`${seen} bytes arrived instead of ${bytes}`);
}

export async function measureFiles(
  rows: Rows,
  daemon: ScratchDaemon,
  sandbox: Sandbox,
  sizes: { snapshotDir: string; bytes: number; rounds: number },
): Promise<void> {
  const { bytes, rounds, snapshotDir } = sizes;
  const content = new Uint8Array(bytes).fill(7);
  const file = `/v1/sandboxes/${sandbox.id}/files?path=${encodeURIComponent(path)}`;
  using client = new RawClient(daemon.socket);
  await withBareGuest(snapshotDir, async (agent) => {
    const byWay: Readonly<Record<(typeof ways)[number], Way>> = {
      "agent channel": {
        up: () => writeFile(agent, path, pieces(content), {}),
        down: async () => drain(await readFile(agent, path, {}), bytes),
      },
      raw: {
        up: () => client.json({ method: "PUT", path: file, content }),
        down: () => client.drain({ path: file }),
      },
      typescript: {
        up: () => sandbox.files.write(path, content),
        down: () => drain(sandbox.files.readStream(path), bytes),
      },
    };
    // The first bytes translate code of the guests.
    for (const way of ways) for (const direction of directions) await byWay[way][direction]();
    const cases = ways.flatMap((way) => directions.map((direction) => ({ way, direction })));
    const found = await inRounds(
      rounds,
      Object.fromEntries(
        cases.map(({ way, direction }) => [
          `${direction}, ${way}`,
          async () => [await timed(byWay[way][direction])],
        ]),
      ),
    );
    for (const [name, times] of Object.entries(found)) {
      for (const wallMs of times) {
        const speed = bytes / 1e6 / (wallMs / 1000);
        rows.add({ case: name, n: 1, wall_ms: wallMs, bytes, mb_per_s: speed }, `${speed.toFixed(0)} MB/s`);
      }
    }
  });
}

/** As a stream delivers it. */
async function* pieces(content: Uint8Array): AsyncGenerator<Uint8Array> {
  const size = 64 * 1024;
  for (let at = 0; at < content.byteLength; at += size) yield content.subarray(at, at + size);
}
