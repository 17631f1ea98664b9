/**
 * A handler for every route: an operation of the runtime by name, or a function that has something to decide.
 */
import type { Handlers } from "../http/handlers.ts";
import { archiveHandlers } from "./archive.ts";
import { buildHandlers } from "./build.ts";
import { configHandlers } from "./config.ts";
import type { Daemon } from "./daemon.ts";
import { execHandlers } from "./exec.ts";
import { hubHandlers } from "./hub.ts";
import { keyHandlers } from "./keys.ts";
import { listHandlers } from "./lists.ts";
import { operationHandlers, type DecidingHandlers } from "./operations.ts";
import { portHandlers } from "./ports.ts";
import { systemHandlers } from "./system.ts";
import { verifyHandlers } from "./verify.ts";

export function allHandlers(daemon: Daemon): Handlers {
  const deciding: DecidingHandlers = {
    ...systemHandlers(daemon),
    ...configHandlers(daemon),
    ...keyHandlers(daemon),
    ...buildHandlers(daemon),
    ...verifyHandlers(daemon),
    ...archiveHandlers(daemon),
    ...hubHandlers(daemon),
    ...listHandlers(daemon),
    ...execHandlers(daemon),
    ...portHandlers(daemon),
  };
  return { ...operationHandlers(daemon.runtime), ...deciding };
}
