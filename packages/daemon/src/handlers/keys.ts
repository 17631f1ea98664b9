import type { Handlers } from "../http/handlers.ts";
import type { Daemon } from "./all.ts";

export function keyHandlers({ keys }: Pick<Daemon, "keys">) {
  return {
    listKeys: () => keys.list(),
    createKey: (input) => keys.create(input),
    removeKey: async (input) => {
      await keys.remove(input.name);
      return undefined;
    },
  } satisfies Partial<Handlers>;
}
