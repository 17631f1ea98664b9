/** The MCP server. The part for HTTP is loaded on demand: most clients use stdio. */
import type { HttpOptions } from "./http/serve.ts";

export { serveStdio } from "./stdio.ts";

/** Resolves when `signal` has aborted and everything is closed. */
export async function serveHttp(options: HttpOptions): Promise<void> {
  const { serveHttp: serve } = await import("./http/serve.ts");
  return serve(options);
}
