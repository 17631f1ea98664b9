/**
 * Random requests from a seed: valid by the schema, with invalid values, or invalid as HTTP. Placeholders
 * stand for sandbox ids, and the sender replaces them, so that the same seed makes the same requests for
 * other ids.
 */
import { statSync } from "node:fs";
import type { Random } from "../random.ts";
import type { Operation } from "./operations.ts";
import { mutate, sample, strangeText, strangeValue, type Json } from "./values.ts";

/** A sandbox that runs to the end; requests must not stop or change it. */
export const keeper = "@keeper@";
/** The same, with a Python interpreter. */
export const pythonKeeper = "@python@";
/** A sandbox that any request may change or stop. */
export const victim = "@victim@";
/** Snapshots that must not be removed. */
const bases = ["tiny", "python"];

export type FuzzRequest = {
  readonly method: string;
  /** path and query, as sent */
  readonly target: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | undefined;
};

const commands: Json[] = [
  ["true"],
  ["echo", "héllo"],
  ["sh", "-c", "exit 3"],
  ["sh", "-c", "kill -9 $$"],
  ["cat"],
  ["cat", "/etc/passwd", "/no/such"],
  ["head", "-c", "5000", "/dev/urandom"],
  ["/no/such"],
  ["/etc/passwd"],
  ["seq", "20000"],
];
const guestPaths = [
  "/root/f",
  "/root",
  "/etc/passwd",
  "/root/d/e",
  "/no/such",
  "/proc/self/status",
  "/dev",
  "/bin/../etc",
];
const code = [
  "1+1",
  "print('x'); 5",
  "raise ValueError('é')",
  "import time",
  "def",
  "'\\ud800'",
  "x = 1",
  "{'a': [1, None]}",
];

/** A value that makes sense for the field, more specific than its schema. */
function hint(operation: Operation, name: string, random: Random): Json | undefined {
  switch (name) {
    case "id":
      return sandboxFor(operation, random);
    case "exec_id":
      return random.pick([1, 2, 2 ** 31 - 1, random.below(2 ** 31)]);
    case "tag":
      return operation.name === "compact"
        ? random.pick(["tiny", "none", "none", "b1"])
        : random.pick(["tiny", "b1", "b2", "none"]);
    case "snapshot_tag":
      return random.pick(["tiny", "b1", "none", "none", "none"]);
    case "parent_tag":
      return random.pick(["tiny", "none"]);
    case "to":
      return operation.name === "moveFile"
        ? random.pick(guestPaths)
        : random.pick(["tiny", "b1", "c1", "none"]);
    case "name":
      return random.pick(["w1", "w2", "default", "other"]);
    case "path":
    case "from":
    case "cwd":
      return random.pick(guestPaths);
    case "args":
      return random.pick(commands);
    case "code":
      return random.pick(code);
    case "user":
      return random.pick(["root", "user", "1000", "0:0", "nobody"]);
    case "mode":
      return operation.name === "branch" ? undefined : random.pick(["0644", "777", "0000"]);
    case "n":
      return random.pick([0, 1, 1, 1, 2, 500, 1000]);
    case "recipe":
    case "rootfs":
    case "kernel":
    case "modules":
      return random.pick(["/no/such", "/etc/passwd", "/dev/null", "/proc/version"]);
    case "timeout_secs":
      return random.pick([0.01, 1, 5]);
    case "label":
      return random.pick(["fuzz", "fuzz=1", "none=", "="]);
    case "ttl_secs":
      return random.pick([1, 60, 31_536_000]);
    default:
      return undefined;
  }
}

const endsSandboxes = new Set(["kill", "pause", "rewind", "setTtl", "branch", "resume"]);

function sandboxFor(operation: Operation, random: Random): string {
  if (operation.name === "eval" || operation.name === "interrupt" || /context/i.test(operation.name)) {
    return random.pick([pythonKeeper, keeper, victim]);
  }
  // Starting or saving a machine takes a quarter of a second, so do it rarely.
  if (endsSandboxes.has(operation.name) && random.chance(0.7)) return "sb-0123456789abcdef01234567";
  return random.pick([keeper, victim, victim, pythonKeeper, "sb-0123456789abcdef01234567"]);
}

function fieldsFor(
  operation: Operation,
  schemas: Operation["inQuery"],
  needed: readonly string[],
  random: Random,
): Record<string, Json> {
  const fields: Record<string, Json> = {};
  for (const [name, schema] of Object.entries(schemas)) {
    if (!needed.includes(name) && !random.chance(0.3)) continue;
    fields[name] = (random.chance(0.9) ? hint(operation, name, random) : undefined) ?? sample(schema, random);
  }
  return fields;
}

function encode(text: string): string {
  // A lone surrogate has no UTF-8 form.
  return encodeURIComponent(Buffer.from(text).toString()).replaceAll("%40", "@");
}

function asText(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** One request for the operation with `spoil` values that do not match the schema. */
function requestFor(operation: Operation, spoil: number, random: Random): FuzzRequest {
  let inPath = fieldsFor(operation, operation.inPath, Object.keys(operation.inPath), random);
  let query = fieldsFor(operation, operation.inQuery, operation.neededInQuery, random);
  const schema = operation.body;
  let body = schema
    ? fieldsFor(operation, schema.properties ?? {}, schema.required ?? [], random)
    : undefined;
  for (let count = 0; count < spoil; count++) {
    const places = [body && "body", Object.keys(operation.inQuery).length > 0 && "query", "path"].filter(
      Boolean,
    );
    const place = random.chance(0.7) ? places[0] : random.pick(places);
    if (place === "body" && body) body = mutate(body, random);
    else if (place === "query") query = mutate(query, random);
    else inPath = Object.fromEntries(Object.keys(inPath).map((key) => [key, strangeText(random)]));
  }
  const path = operation.path.replaceAll(/\{(\w+)\}/g, (_, key: string) => encode(asText(inPath[key] ?? "")));
  const pairs = Object.entries(query).map(([key, value]) => `${encode(key)}=${encode(asText(value))}`);
  const target = pairs.length > 0 ? `${path}?${pairs.join("&")}` : path;
  if (operation.upload) {
    return {
      method: operation.method,
      target,
      headers: { "content-type": "application/octet-stream" },
      body: random.pick(["", "some content", "x".repeat(random.below(70_000))]),
    };
  }
  if (!body) return { method: operation.method, target, headers: {}, body: undefined };
  return {
    method: operation.method,
    target,
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  };
}

const strangeHeaders: Record<string, string>[] = [
  { "content-type": "text/plain" },
  { "content-type": "application/json; charset=utf-16" },
  { "content-type": "multipart/form-data; boundary=x" },
  { "content-encoding": "gzip" },
  { accept: "image/png" },
  { "accept-encoding": "br;q=1.0, *;q=0" },
  { "x-request-id": "mine-1.2_3" },
  { "x-request-id": "no good id \u00e9" },
  { "x-request-id": "x".repeat(500) },
  { authorization: "Bearer wrong" },
  { authorization: "Basic Og==" },
  { host: "evil.example:99999" },
  { host: "" },
  { cookie: "a=b".repeat(1000) },
  { "x-forwarded-for": "1.2.3.4" },
  { "if-none-match": "*" },
  { range: "bytes=0-1" },
  { "idempotency-key": "k".repeat(300) },
  { "x-http-method-override": "DELETE" },
];

/** Makes the request invalid as HTTP. */
function spoilHttp(request: FuzzRequest, random: Random): FuzzRequest {
  const { body = "", target, headers } = request;
  switch (random.below(11)) {
    case 0:
      return {
        ...request,
        method: random.pick(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"]),
      };
    case 1:
    case 2:
      return { ...request, headers: { ...headers, ...random.pick(strangeHeaders) } };
    case 3:
      return { ...request, body: body.slice(0, random.below(body.length + 1)) };
    case 4:
      return {
        ...request,
        body: random.pick([
          "{",
          "nul",
          "[]",
          '"x"',
          "1",
          "null",
          "{} {}",
          "{'a':1}",
          "\ufeff{}",
          '{"a":1,"a":2}',
          "[".repeat(9000),
          '{"n":1e999}',
        ]),
      };
    case 5: {
      const [first = ""] = (target.split("?")[1] ?? "path=/x").split("&");
      return { ...request, target: `${target}${target.includes("?") ? "&" : "?"}${first}&${first}` };
    }
    case 6:
      return {
        ...request,
        target: `${target}${target.includes("?") ? "&" : "?"}${random.pick(["%", "%zz=1", "a=%ff", "=", "&&", "a[]=1", "__proto__=1", "path=%00", "x=%E0%A4%A"])}`,
      };
    case 7:
      return {
        ...request,
        target: random.pick([
          target.replace("/v1/", "/v1/..%2f"),
          target.replace("/v1/", "/v1/%2e%2e/v1/"),
          target.replace("/v1/", "//v1//"),
          `${target}/`,
          `${target};a=b`,
          `${target}#fragment`,
          target.replace("/v1/", "/V1/"),
          target.replace("/v1/", "/v2/"),
          target.replaceAll(/\/[^/?]+(?=\?|$)/g, "/%"),
          `${target}%`,
          target.replace("/v1/", "/v1/./"),
          "/",
          "/favicon.ico",
          "/metrics/../healthz",
        ]),
      };
    case 8:
      return {
        ...request,
        target: `${target}${target.includes("?") ? "&" : "?"}x=${"y".repeat(random.pick([2000, 9000]))}`,
      };
    case 9:
      return {
        ...request,
        method: random.pick(["GET", "DELETE", "HEAD"]),
        body: body === "" ? '{"a":1}' : body,
      };
    default:
      return { ...request, body: JSON.stringify(strangeValue(random)) };
  }
}

export function* requests(
  operations: readonly Operation[],
  count: number,
  random: Random,
): Generator<FuzzRequest> {
  for (let made = 0; made < count;) {
    const operation = random.pick(operations);
    const kind = random.next();
    const spoil = kind < 0.25 ? 0 : 1 + random.below(3);
    const plain = requestFor(operation, kind < 0.8 ? spoil : random.below(2), random);
    const request = kind < 0.8 ? plain : spoilHttp(plain, random);
    if (isForbidden(request)) continue;
    made++;
    yield request;
  }
}

/** Requests that would stop the daemon, take minutes, or damage the kept sandboxes. */
function isForbidden({ method, target, body }: FuzzRequest): boolean {
  const { pathname } = new URL(target.replace(/^\/+/, "/"), "http://host");
  const path = decode(pathname).replaceAll(/\/+/g, "/").replace(/\/$/, "").toLowerCase();
  if (path.endsWith("/shutdown")) return true;
  // This boots a guest on each accelerator.
  if (path.endsWith("/doctor") && target.includes("boot")) return true;
  if (method === "DELETE") {
    if (path.endsWith("/sandboxes"))
      return !target.includes("label=fuzz") || target.includes("label=fuzz&label");
    if (bases.some((tag) => path.includes(`/snapshots/${tag}`))) return true;
  }
  const forKeeper = path.includes(keeper) || path.includes(pythonKeeper);
  const survived = /\/(exec|eval|interrupt|ping)$|\/execs\/[^/]+\/\w+$/;
  if (forKeeper && !["GET", "HEAD", "OPTIONS"].includes(method) && !survived.test(path)) return true;
  return path.endsWith("/snapshots") && method === "POST" && namesDirectory(body ?? "");
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Whether the body names a directory that exists; a build would copy it. */
function namesDirectory(body: string): boolean {
  return [...body.matchAll(/"(\/[^"\\]*)"/g)].some(([, path]) => {
    try {
      return statSync(path ?? "").isDirectory();
    } catch {
      return false;
    }
  });
}
