/** Parses arguments and environment variables. No other file of this package reads `process.env`. */
import { InvalidArgumentError } from "commander";

/** A usage error that is found after commander has parsed the arguments. */
export function usage(message: string): InvalidArgumentError {
  return new InvalidArgumentError(message);
}

const unitSeconds = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86_400 } as const;

/** "90", "90s", "10m", "1h30m", "500ms" → seconds. */
export function parseDuration(text: string): number {
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text);
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) {
    throw new InvalidArgumentError('It must be a duration such as "90", "30s", "10m" or "1h30m".');
  }
  let seconds = 0;
  for (const [, amount, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) {
    seconds += Number(amount) * unitSeconds[unit as keyof typeof unitSeconds]; // the pattern ensures it
  }
  return seconds;
}

/** A duration of at least one second, rounded up to whole seconds. */
export function parseLifetime(text: string): number {
  const seconds = Math.ceil(parseDuration(text));
  if (seconds < 1) throw new InvalidArgumentError("It must be at least one second.");
  return seconds;
}

/** "30d" from now, or a time such as "2027-01-31T12:00:00Z". */
export function parseExpiry(text: string, nowMs = Date.now()): Date {
  const at = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/i.test(text)
    ? Date.parse(text)
    : /^[\d.]+(ms|[smhd])/.test(text)
      ? nowMs + parseLifetime(text) * 1000
      : Number.NaN;
  if (Number.isNaN(at)) {
    throw new InvalidArgumentError(
      'It must be a duration with a unit such as "30d", or a time such as "2027-01-31T12:00:00Z".',
    );
  }
  if (at <= nowMs) throw new InvalidArgumentError("It must be in the future.");
  return new Date(at);
}

/** A parser of whole numbers from `min` to `max`. */
export function wholeNumber(min: number, max = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max)) {
      const upper = max === Number.MAX_SAFE_INTEGER ? "or more" : `to ${max}`;
      throw new InvalidArgumentError(`It must be a whole number, ${min} ${upper}.`);
    }
    return value;
  };
}

function splitPair(text: string): [key: string, value: string | undefined] {
  const at = text.indexOf("=");
  return at === -1 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)];
}

/** Collects `K=V`; for `K` alone, the value of K in this process. */
export function collectEnv(
  text: string,
  previous: Record<string, string> = {},
  environment: NodeJS.ProcessEnv = process.env,
): Record<string, string> {
  const [key, given] = splitPair(text);
  const value = given ?? environment[key];
  if (key === "" || value === undefined) {
    throw new InvalidArgumentError("It must be NAME=VALUE, or the NAME of a variable of this process.");
  }
  return { ...previous, [key]: value };
}

/** Collects labels, `k=v`. */
export function collectLabel(text: string, previous: Record<string, string> = {}): Record<string, string> {
  const [key, value] = splitPair(text);
  if (key === "" || value === undefined) throw new InvalidArgumentError("It must be name=value.");
  return { ...previous, [key]: value };
}

/** Collects settings of the daemon, NAME=VALUE, each once. */
export function collectSetting(text: string, previous: Record<string, string> = {}): Record<string, string> {
  const [name, value] = splitPair(text);
  if (name === "" || value === undefined) throw new InvalidArgumentError("It must be NAME=VALUE.");
  if (Object.hasOwn(previous, name)) throw new InvalidArgumentError(`The setting ${name} is given twice.`);
  return { ...previous, [name]: value };
}

/** One label as the daemon's filter takes it. */
export function parseLabel(text: string): string {
  collectLabel(text);
  return text;
}

/** Collects labels to filter by: `name` or `name=value`. */
export function collectLabelFilter(text: string, previous: string[] = []): string[] {
  if (text === "" || text.startsWith("="))
    throw new InvalidArgumentError("It must be name=value, or a name.");
  return [...previous, text];
}

/** Collects `python` or `python=WARM-UP CODE`. */
export function collectLanguage(
  text: string,
  previous: Record<string, { warmup: string }> = {},
): Record<string, { warmup: string }> {
  const [name, warmup = ""] = splitPair(text);
  if (name !== "python" && name !== "node") {
    throw new InvalidArgumentError('It must be "python" or "node", optionally with "=CODE" as its warm-up.');
  }
  return { ...previous, [name]: { warmup } };
}

export function collectText(text: string, previous: string[] = []): string[] {
  return [...previous, text];
}

/** A sandbox as it can be named on the command line. */
export type Named = { readonly id: string; readonly workspace?: string | undefined };
export type Match = { id: string } | { ambiguous: string[] } | undefined;

/**
 * Finds the one sandbox whose id starts with `text`, with or without the leading "sb-". If there is none, the
 * one whose workspace has that name.
 */
export function matchSandbox(text: string, sandboxes: readonly Named[]): Match {
  const wanted = text.startsWith("sb-") ? text : `sb-${text}`;
  const matches = sandboxes.filter(({ id }) => id.startsWith(wanted)).map(({ id }) => id);
  if (matches.length === 1 && matches[0] !== undefined) return { id: matches[0] };
  const named = sandboxes.find(({ workspace }) => workspace === text);
  if (named !== undefined) return { id: named.id };
  return matches.length === 0 ? undefined : { ambiguous: matches };
}

export type CopyEnd =
  { kind: "guest"; id: string; path: string } | { kind: "host"; path: string } | { kind: "standard" };

/** One side of a copy: `ID:/path` or `WORKSPACE:/path`, a host path (with a colon: `./a:b`), or `-`. */
export function parseCopyEnd(text: string): CopyEnd {
  if (text === "-") return { kind: "standard" };
  const guest = /^([A-Za-z0-9][A-Za-z0-9._-]*):(.*)$/s.exec(text);
  if (guest === null) return { kind: "host", path: text };
  const [, id = "", path = ""] = guest;
  if (!path.startsWith("/"))
    throw new InvalidArgumentError(`"${text}" must have an absolute path after the colon.`);
  return { kind: "guest", id, path };
}

export type Environment = {
  readonly noColor: boolean;
  readonly dumbTerminal: boolean;
  /** Whether the terminal shows characters outside ASCII. */
  readonly unicode: boolean;
  readonly term: string;
  /** Address of a daemon that may run on another host. */
  readonly url: string | undefined;
  readonly recipesDir: string | undefined;
  /** All variables, for the SDK's rules about directories. */
  readonly variables: NodeJS.ProcessEnv;
};

export function readEnvironment(env: NodeJS.ProcessEnv = process.env): Environment {
  return {
    noColor: (env["NO_COLOR"] ?? "") !== "",
    dumbTerminal: env["TERM"] === "dumb",
    unicode: env["TERM"] !== "dumb" && /utf-?8/i.test(env["LC_ALL"] || env["LC_CTYPE"] || env["LANG"] || ""),
    term: env["TERM"] ?? "xterm",
    url: env["FORKD_SOCKET"] ? undefined : env["FORKD_URL"] || undefined,
    recipesDir: env["FORKD_RECIPES_DIR"] || undefined,
    variables: env,
  };
}
