/** Files by which programs in the guest report to a check. */
import { writeFile } from "@forkd/machine";
import type { Subject } from "./hazard.ts";

const pollMs = 200;

/** The content of a file once `isDone` accepts it; undefined after `ms`. Nothing in the guest reports a change. */
export async function appears(
  subject: Subject,
  path: string,
  ms: number,
  isDone: (text: string) => boolean = (text) => text !== "",
): Promise<string | undefined> {
  const deadline = performance.now() + ms;
  for (;;) {
    const text = await subject.read(path);
    if (text !== undefined && isDone(text)) return text;
    if (performance.now() > deadline) return undefined;
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
}

/** The first number of /proc/uptime. */
export function secondsIn(text: string | undefined): number {
  return text === undefined || text === "" ? Number.NaN : Number(text.split(" ")[0]);
}

/** Makes the guest read from its disk again, not from the page cache, which is memory. */
export async function dropCaches({ sandbox: { agent } }: Subject): Promise<void> {
  await agent.sync();
  // Not a whole file, for which the agent would make a temporary one beside it.
  await writeFile(agent, "/proc/sys/vm/drop_caches", [Buffer.from("3\n")], { append: true });
}
