import type { StoredSnapshot } from "@forkd/store";
import type { Runtime } from "../runtime.ts";

/** The snapshot with that tag. Throws if there is none, or if it is still being written. */
export async function usableSnapshot(
  { branches, store }: Pick<Runtime, "branches" | "store">,
  tag: string,
): Promise<StoredSnapshot> {
  branches.refuse(tag);
  return store.get(tag);
}
