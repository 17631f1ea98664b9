/** Guests that answer the checks, and hazards that a test controls. */
import { randomUUID } from "node:crypto";
import type { HazardId } from "@forkd/contract";
import type { verifySnapshot } from "../../src/verify/verify-snapshot.ts";
import { pass, type Hazard } from "../../src/verify/hazard.ts";
import type { Script } from "../fakes/engine.ts";
import type { FakeStart } from "../fakes/guest.ts";
import { context } from "../support.ts";

export const uuidPath = "/proc/sys/kernel/random/uuid";

/** A guest whose kernel draws from `draw`. */
export function drawing(draw: () => string = randomUUID): Script {
  return { answer: ({ path }: FakeStart) => (path === uuidPath ? { stdout: `${draw()}\n` } : undefined) };
}

type ReportedContext = Parameters<typeof verifySnapshot>[3] & { messages: string[]; hazards: string[] };

/** A context that collects what a verification reports. */
export function verifyContext(signal: AbortSignal = new AbortController().signal): ReportedContext {
  const messages: string[] = [];
  const hazards: string[] = [];
  return {
    ...context,
    signal,
    messages,
    hazards,
    onProgress: (message: string) => messages.push(message),
    onHazard: ({ id, outcome }: { id: string; outcome: string }) => hazards.push(`${id} ${outcome}`),
  };
}

export function hazard(some: Partial<Hazard> = {}, id: HazardId = "entropy"): Hazard {
  const check = async () => pass("fine");
  return { id, title: "title", policy: "policy", mechanism: "mechanism", check, ...some };
}
