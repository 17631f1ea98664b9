/**
 * The gateway: `http://secrets.internal/NAME/rest` stands for `https://HOST/rest` with the header of the
 * secret. For clients with a base URL, without TLS interception. Pure.
 */
import type { GatewayTarget } from "../proxy/intercept.ts";
import type { MachineSecret } from "../types.ts";
import { authorityOf, targetOf } from "./hosts.ts";
import { faultInUrl, needlesFor } from "./placeholders.ts";
import { Scrubber } from "./scrubber.ts";

/** undefined if the path names no secret of the machine */
export function gatewayTarget(
  path: string,
  secrets: readonly MachineSecret[],
): { target: GatewayTarget } | { refused: string } | undefined {
  const parts = /^\/([A-Z][A-Z0-9_]{0,63})(\/[^?#]*)?(\?[^#]*)?$/.exec(path);
  const secret = parts && secrets.find(({ name }) => name === parts[1]);
  if (!parts || !secret) return undefined;
  const [, name, rest = "/", query = ""] = parts;
  const host = targetOf(secret.hosts);
  if (host === undefined)
    return {
      refused: `The secret "${name}" has only hosts with a wildcard. The gateway needs an exact name`,
    };
  // A server or a proxy in front of it may resolve these to another path than the one that was asked for.
  if (/(?:^|[/\\]|%2f|%5c)(?:\.|%2e){1,2}(?:$|[/\\]|%2f|%5c)/i.test(rest) || rest.includes("\\"))
    return { refused: 'The path has a segment "." or "..", or a backslash' };
  if (!/^[\x21-\x7e]*$/.test(rest + query))
    return { refused: "The path has characters that must be encoded" };
  const fault = faultInUrl(rest + query, host, secrets);
  if (fault !== undefined) return { refused: fault };
  return {
    target: {
      name: host.name,
      port: host.port,
      path: `${rest}${query}`,
      headers: [
        "Host",
        authorityOf(host.name, host.port),
        secret.header,
        secret.format.replace("{}", () => secret.value),
        // The filter finds values only in bodies without an encoding.
        "Accept-Encoding",
        "identity",
      ],
      response: new Scrubber(needlesFor(host, secrets)),
    },
  };
}
