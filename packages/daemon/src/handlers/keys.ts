import type { Handlers } from "../http/handlers.ts";
import type { Daemon } from "./daemon.ts";

export function keyHandlers({ keys }: Pick<Daemon, "keys">) {
  return {
    listKeys: () => keys.list(),
    createKey: (input) => keys.create(input),
    removeKey: ({ name }) => keys.remove(name),
  } satisfies Partial<Handlers>;
}
