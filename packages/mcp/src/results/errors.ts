/** A thrown value → a result that a model can act on. */
import type { CallToolResult } from "@modelcontextprotocol/server";
import { toAppError } from "@forkd/contract/wire";
import { toolRemedy } from "./remedies.ts";
import { safeText, safeValue } from "./safe-text.ts";

/** Key of the error as data in `_meta`: a client may check `structuredContent` against the output schema. */
const errorKey = "forkd/error";

export function errorResult(error: unknown): CallToolResult {
  const app = toAppError(error);
  const message = safeText(app.message).text;
  const remedy = toolRemedy(app);
  const lines = [`Error: ${message}`, `Code: ${app.code}`];
  if (remedy !== undefined) lines.push(`Remedy: ${safeText(remedy).text}`);
  const details = safeValue(app.details);
  return {
    isError: true,
    content: [{ type: "text", text: lines.join("\n") }],
    _meta: { [errorKey]: { code: app.code, message, ...(remedy !== undefined && { remedy }), details } },
  };
}
