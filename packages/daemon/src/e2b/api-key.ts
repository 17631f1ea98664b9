/** Keys in the form that E2B's clients accept. Pure. */
import type { IncomingHttpHeaders } from "node:http";

const hexKey = /^e2b_((?:[0-9a-f]{2})+)$/;

/**
 * The token or key that the header X-API-KEY has. Some clients take only `e2b_` and hexadecimal digits: the
 * digits are the bytes of the token or key. One that is written as it is works too.
 */
export function apiKeyOf(headers: IncomingHttpHeaders): string | undefined {
  const given = headers["x-api-key"];
  if (typeof given !== "string" || given === "") return undefined;
  const [, digits] = hexKey.exec(given) ?? [];
  return digits === undefined ? given : Buffer.from(digits, "hex").toString("utf8");
}
