/** A request names one host. Programs on its way that believe another of two would disagree with the daemon. */
import type { IncomingMessage } from "node:http";

/** Why the host of a request is refused, or undefined. */
export function hostProblem(
  incoming: Pick<IncomingMessage, "rawHeaders" | "headers" | "url">,
): string | undefined {
  const names = incoming.rawHeaders.filter((text, at) => at % 2 === 0 && text.toLowerCase() === "host");
  if (names.length > 1) return "the header Host is given twice";
  const { host } = incoming.headers;
  const target = hostOf(incoming.url ?? "");
  if (host === undefined || target === undefined || target === hostOf(`http://${host}/`)) return undefined;
  return "its URL and its header Host name different hosts";
}

/** The host and port of an absolute URL, in one spelling. */
function hostOf(url: string): string | undefined {
  return /^https?:\/\//.test(url) && URL.canParse(url) ? new URL(url).host : undefined;
}
