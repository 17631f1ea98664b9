/** Children that wait ready to be handed out. */
import { AppError, type ParsedOf, type PoolInfo } from "@forkd/contract";
import { isPoolable } from "../launch/shelf.ts";
import type { Runtime } from "../runtime.ts";

export function getPool({ pool }: Pick<Runtime, "pool">): PoolInfo {
  return {
    budget_mib: pool.budgetMib,
    used_mib: pool.usedMib,
    snapshots: pool.shelves().map(({ tag, ready, making, wanted, pinned, childMib }) => ({
      tag,
      ready,
      making,
      wanted,
      is_set: pinned !== undefined,
      child_mib: childMib,
    })),
  };
}

export async function setPool(
  { pool, store }: Pick<Runtime, "pool" | "store">,
  { tag, ready }: ParsedOf<"setPool">,
): Promise<PoolInfo> {
  if (!pool.isOn) {
    throw new AppError("wrong_state", "Cannot keep children ready: the settings switch the pool off", {
      remedy: { action: "change_setting", setting: "pool_memory_percent", to: "a number above 0" },
    });
  }
  // Fails if there is no such snapshot. A number that was set for one that is gone can be taken back.
  const snapshot = ready === null ? undefined : await store.get(tag);
  if (snapshot && !isPoolable(snapshot)) {
    throw new AppError(
      "unsupported",
      `Cannot keep children of "${tag}" ready: it is a branch that was in the middle of an eval, or whose children may connect to a network`,
      { details: { tag } },
    );
  }
  await pool.pin(tag, ready ?? undefined);
  return getPool({ pool });
}
