/** The settings that the daemon uses. */
import type { Handlers } from "../http/handlers.ts";
import { describeSettings } from "../settings/edit.ts";
import type { Daemon } from "./daemon.ts";

export function configHandlers({ config }: Pick<Daemon, "config">) {
  return {
    config: () => ({ pid: process.pid, settings: describeSettings(config) }),
  } satisfies Partial<Handlers>;
}
