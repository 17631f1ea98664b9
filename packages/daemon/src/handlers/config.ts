/** What the daemon was told. */
import type { Handlers } from "../http/handlers.ts";
import { describeSettings } from "../settings/edit.ts";
import type { Daemon } from "./all.ts";

export function configHandlers({ config }: Daemon) {
  return {
    config: () => ({ pid: process.pid, settings: describeSettings(config) }),
  } satisfies Partial<Handlers>;
}
