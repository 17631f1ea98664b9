/** Headers as lists of name, value, name, value …, which keep case, order and duplicates. */

/** Only for one connection (RFC 9110, 7.6.1). Content-Length and Transfer-Encoding frame the body and stay. */
const hopByHop = new Set([
  "connection",
  "keep-alive",
  "proxy-connection",
  "proxy-authenticate",
  "proxy-authorization",
  "upgrade",
  "http2-settings",
]);

export function* headerPairs(raw: readonly string[]): Generator<[name: string, value: string]> {
  for (let index = 0; index + 1 < raw.length; index += 2) yield [raw[index] ?? "", raw[index + 1] ?? ""];
}

export function headerValues(raw: readonly string[], wanted: string): string[] {
  return [...headerPairs(raw)].flatMap(([name, value]) => (name.toLowerCase() === wanted ? [value] : []));
}

/** Without the headers named here; names in lower case. */
export function withoutHeaders(raw: readonly string[], names: ReadonlySet<string>): string[] {
  return [...headerPairs(raw)].flatMap((pair) => (names.has(pair[0].toLowerCase()) ? [] : pair));
}

/** Without what concerns only the connection that the message came by. */
export function endToEnd(raw: readonly string[]): string[] {
  const listed = headerValues(raw, "connection").flatMap((value) => value.split(","));
  const names = new Set([...hopByHop, ...listed.map((name) => name.trim().toLowerCase())]);
  // A sender cannot have the framing or the host removed by naming it.
  for (const name of ["content-length", "transfer-encoding", "host", "te", "trailer"]) names.delete(name);
  return withoutHeaders(raw, names);
}

/** Without the frame of the body and what needs chunks, for a message that is framed again. */
const framing = new Set(["transfer-encoding", "trailer"]);

export function isChunked(raw: readonly string[]): boolean {
  return headerValues(raw, "transfer-encoding").length > 0;
}

/** The headers of a response, to be framed again for a client that may not know chunks. */
export function responseHeaders(raw: readonly string[], mayHaveTrailers: boolean): string[] {
  const headers = endToEnd(raw);
  return withoutHeaders(
    headers,
    mayHaveTrailers && isChunked(raw) ? new Set(["transfer-encoding"]) : framing,
  );
}

export function headerBytes(raw: readonly string[]): number {
  return raw.reduce((sum, text) => sum + text.length + 2, 0);
}
