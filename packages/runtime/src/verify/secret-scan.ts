/** Values that look like secrets. Reports where they are and what they look like, never the value. Pure. */

/** Formats of well-known services. */
const formats: readonly (readonly [what: string, pattern: RegExp])[] = [
  ["a private key", /-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----/],
  ["an AWS key", /\b(?:AKIA|ASIA)[0-9A-Z]{16}\b/],
  ["a GitHub token", /\bgh[pousr]_[A-Za-z0-9]{36,}|\bgithub_pat_[A-Za-z0-9_]{50,}/],
  ["a GitLab token", /\bglpat-[A-Za-z0-9_-]{20,}/],
  ["a Slack token", /\bxox[abposr]-[A-Za-z0-9-]{10,}/],
  ["an API key", /\bsk-[A-Za-z0-9_-]{20,}/],
  ["a Google key", /\bAIza[0-9A-Za-z_-]{35}\b/],
  ["an npm token", /\bnpm_[A-Za-z0-9]{36}\b/],
  ["a PyPI token", /\bpypi-[A-Za-z0-9_-]{50,}/],
  ["a Hugging Face token", /\bhf_[A-Za-z0-9]{30,}\b/],
  ["a JSON Web Token", /\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}/],
  ["a URL with a password", /\b[a-z][a-z0-9+.-]*:\/\/[^\s:/@]+:[^\s:/@]{3,}@/],
];

/** "DATABASE_PASSWORD", "api-token", "id.secret" */
const secretName =
  /(?:^|[_.-])(?:pass(?:word|wd|phrase)?|secret|token|credentials?|api_?key|access_?key|private_?key|auth)(?:$|[_.-])/i;

/** A value that stands for a secret, such as those that a proxy replaces. */
const placeholder =
  /^(?:forkd-secret-[0-9a-f]{32}|(?:change|replace)[_-]?me|placeholder|dummy|example|test|none|null|todo|redacted|x{3,}|\*{3,}|<.*>|\$\{.*\}|\{\{.*\}\}|your[_-].*)$/i;

const minValue = 8;
/** one word of many different characters, such as 32 hexadecimal digits */
const randomWord = /^[A-Za-z0-9+/_=.-]{20,}$/;
const minDifferent = 10;

/** What a text contains that looks like a secret. */
function formatIn(text: string): string | undefined {
  return formats.find(([, pattern]) => pattern.test(text))?.[0];
}

/** Why a variable looks like a secret; undefined if it does not. */
export function secretInVariable(name: string, value: string): string | undefined {
  if (placeholder.test(value)) return undefined;
  const known = formatIn(value);
  if (known !== undefined) return known;
  // A path or a number is not a secret, whatever its name.
  if (!secretName.test(name) || value.length < minValue || /^(?:\/|\d+$)/.test(value)) return undefined;
  return "a value in a variable with such a name";
}

/** Why the content of a file looks like a secret. */
export function secretInFile(path: string, content: string): string | undefined {
  const known = formatIn(content);
  if (known !== undefined) return known;
  const name = path.slice(path.lastIndexOf("/") + 1);
  for (const line of content.split("\n").slice(0, 200)) {
    const [, variable = "", value = ""] =
      /^\s*(?:export\s+)?([\w.-]+)\s*[=:]\s*["']?([^"'\s]+)/.exec(line) ?? [];
    if (variable !== "" && secretInVariable(variable, value) !== undefined) return `a value of "${variable}"`;
  }
  const [first = ""] = content.trim().split("\n");
  const isToken =
    /token|secret|password|key/i.test(name) && randomWord.test(first) && !placeholder.test(first);
  return isToken && new Set(first).size >= minDifferent ? "a random value" : undefined;
}

/** `NAME=value` of one environment, separated by NUL. */
export function secretsInEnvironment(text: string): { name: string; what: string }[] {
  return text.split("\0").flatMap((entry) => {
    const at = entry.indexOf("=");
    if (at <= 0) return [];
    const name = entry.slice(0, at);
    const what = secretInVariable(name, entry.slice(at + 1));
    return what === undefined ? [] : [{ name, what }];
  });
}
