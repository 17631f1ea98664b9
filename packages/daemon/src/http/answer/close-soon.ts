/** An answer that is over and that nobody reads would keep its connection for ever. */
import type { ServerResponse } from "node:http";

/** How long a client may take to read why its answer ends */
const lingerMs = 5_000;

export function closeSoon(outgoing: ServerResponse): void {
  const cut = setTimeout(() => outgoing.destroy(), lingerMs).unref();
  outgoing.once("close", () => clearTimeout(cut));
}
