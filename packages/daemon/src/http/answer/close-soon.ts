/** A deadline for clients that do not read the end of their answer. */
import type { ServerResponse } from "node:http";

/** How long a client may take to read the end of its answer */
const lingerMs = 5_000;

export function closeSoon(outgoing: ServerResponse): void {
  const cut = setTimeout(() => outgoing.destroy(), lingerMs).unref();
  outgoing.once("close", () => clearTimeout(cut));
}
