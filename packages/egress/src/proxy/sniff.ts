/** What a connection is, by its first bytes. */
import { METHODS } from "node:http";
import { isTlsStart, readClientHello, type ClientHello } from "./client-hello.ts";

export const maxPeekBytes = 16 * 1024;

export type Sniffed =
  | ({ readonly kind: "tls" } & ClientHello)
  | { readonly kind: "http" }
  | { readonly kind: "raw" }
  | { readonly kind: "malformed"; readonly reason: string }
  /** not known yet; `orRaw`: if nothing more comes, it is another protocol */
  | { readonly kind: "more"; readonly orRaw: boolean };

// PRI begins HTTP/2 without TLS, which carries names that are not read here.
const methods = new Set(METHODS.filter((method) => method !== "PRI"));
const longestMethod = Math.max(...[...methods].map((method) => method.length));
const maxLine = 4096;

export function sniff(bytes: Buffer): Sniffed {
  const tls = isTlsStart(bytes);
  if (tls === "more") return { kind: "more", orRaw: bytes.length === 0 };
  if (tls) return sniffTls(bytes);
  // Servers skip empty lines before a request.
  let start = 0;
  while (start < bytes.length && (bytes[start] === 0x0d || bytes[start] === 0x0a)) start++;
  if (start > 64) return { kind: "malformed", reason: "too many empty lines" };
  const text = bytes.subarray(start, start + maxLine).toString("latin1");
  if (text === "") return { kind: "more", orRaw: true };
  const word = /^[A-Z-]*/.exec(text)?.[0] ?? "";
  if (text[word.length] === " " && methods.has(word)) return { kind: "http" };
  if (text.length === word.length && word.length < longestMethod && couldBeMethod(word))
    return { kind: "more", orRaw: false };
  // Any other request line is HTTP, too, and is refused as such.
  const line = /^[^\r\n]*(?=[\r\n])/.exec(text)?.[0];
  if (line !== undefined)
    return { kind: / HTTP\/\d(\.\d)?\s*$/i.test(line) && !line.startsWith("PRI ") ? "http" : "raw" };
  const isToken = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}( [\x20-\x7e]*)?$/.test(text);
  return isToken && text.length < maxLine ? { kind: "more", orRaw: true } : { kind: "raw" };
}

function couldBeMethod(word: string): boolean {
  return [...methods].some((method) => method.startsWith(word));
}

function sniffTls(bytes: Buffer): Sniffed {
  const hello = readClientHello(bytes);
  if (hello === "malformed") return { kind: "malformed", reason: "the TLS hello cannot be read" };
  if (hello !== "more") return { kind: "tls", ...hello };
  if (bytes.length >= maxPeekBytes) return { kind: "malformed", reason: "the TLS hello is too long" };
  return { kind: "more", orRaw: false };
}
