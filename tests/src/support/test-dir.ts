/** A directory that is removed when it is disposed. */
import { mkdtemp } from "node:fs/promises";
import { removeTree } from "@forkd/base";
import { testPrefix } from "./places.ts";

export async function testDir(): Promise<{ path: string } & AsyncDisposable> {
  const path = await mkdtemp(testPrefix);
  return { path, [Symbol.asyncDispose]: () => removeTree(path) };
}
