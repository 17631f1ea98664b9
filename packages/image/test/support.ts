/** Looks at the cache in tests. */
import { readdir } from "node:fs/promises";

/** Every name under a directory of the cache, temporary ones included. */
export async function namesIn(path: string): Promise<string[]> {
  const names: string[] = await readdir(path, { recursive: true }).catch(() => []);
  return names.sort();
}
