/** Which requests are E2B's, and which part of it they are for. */
import type { IncomingMessage } from "node:http";
import { isControlPath } from "./control/routes.ts";
import { findSigner } from "./signature.ts";
import { envdPort, interpreterPort, type AccessTokens, type Target } from "./types.ts";

/** A request by what it says of itself; whether the sandbox exists is not known yet. */
export type Routed =
  /** to a port of a sandbox: the agent, the interpreter or a server in it */
  | { readonly kind: "sandbox"; readonly target: Target; readonly isByHost?: true }
  /** to a file, by a URL that is its own permission */
  | { readonly kind: "signed"; readonly target: Target }
  /** the files of a COPY step */
  | { readonly kind: "upload"; readonly hash: string; readonly token: string }
  | { readonly kind: "control"; readonly path: string };

const upload = /^\/templates\/[^/]+\/files\/([0-9a-f]{64})$/;
const portText = /^[1-9]\d{0,4}$/;

/** undefined: the request is not E2B's. `path` is that of the request, without its query. */
export function routeOf(
  { method, url = "", headers }: Pick<IncomingMessage, "method" | "url" | "headers">,
  path: string,
  tokens: AccessTokens,
): Routed | undefined {
  const id = headers["e2b-sandbox-id"];
  if (typeof id === "string")
    return { kind: "sandbox", target: { id, port: portOf(headers["e2b-sandbox-port"]) } };
  const query = new URLSearchParams(/\?(.*)$/s.exec(url)?.[1] ?? "");
  const [, hash] = upload.exec(path) ?? [];
  const token = query.get("upload");
  if (method === "PUT" && hash !== undefined && token !== null) return { kind: "upload", hash, token };
  if (path === "/files" && query.has("signature")) {
    const signed = sandboxOfSignature(method ?? "GET", query, tokens);
    // Without one, the answer is that of a sandbox that does not exist.
    return { kind: "signed", target: { id: signed ?? "", port: envdPort } };
  }
  return isControlPath(path) ? { kind: "control", path } : undefined;
}

function portOf(text: string | string[] | undefined): number {
  if (typeof text !== "string" || !portText.test(text)) return envdPort;
  return Math.min(65_535, Number(text));
}

/** The sandbox whose token makes the signature of the request. */
function sandboxOfSignature(
  method: string,
  query: URLSearchParams,
  tokens: AccessTokens,
): string | undefined {
  const file = {
    path: query.get("path") ?? "",
    operation: method === "POST" || method === "PUT" ? ("write" as const) : ("read" as const),
    user: query.get("username") ?? "",
    expiration: query.get("signature_expiration") ?? undefined,
  };
  return findSigner(file, query.get("signature") ?? "", tokens.all())?.id;
}

/** Whether the data plane serves the port itself. */
export function isOwnPort(port: number): boolean {
  return port === envdPort || port === interpreterPort;
}
