/** Reads `WWW-Authenticate` (RFC 9110): several challenges, each a scheme with parameters. */

export type Challenge = { readonly scheme: string; readonly parameters: Readonly<Record<string, string>> };

const maxLength = 8192;
const token = /[!#$%&'*+\-.^_`|~0-9A-Za-z]+/y;
const parameter = /([!#$%&'*+\-.^_`|~0-9A-Za-z]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))/y;
const separator = /[\s,]*/y;

/** The challenges that can be read; what follows a fault is left out. */
export function parseChallenges(header: string): Challenge[] {
  const challenges: { scheme: string; parameters: Record<string, string> }[] = [];
  if (header.length > maxLength) return challenges;
  let at = 0;
  const take = (pattern: RegExp): RegExpExecArray | undefined => {
    pattern.lastIndex = at;
    const found = pattern.exec(header);
    if (found) at = pattern.lastIndex;
    return found ?? undefined;
  };
  while (at < header.length) {
    take(separator);
    const last = challenges.at(-1);
    // A name before "=" belongs to the challenge before it.
    const found = last && take(parameter);
    if (last && found?.[1] !== undefined) {
      last.parameters[found[1].toLowerCase()] = found[2]?.replaceAll(/\\(.)/g, "$1") ?? found[3] ?? "";
      continue;
    }
    const scheme = take(token);
    if (!scheme) break;
    challenges.push({ scheme: scheme[0].toLowerCase(), parameters: {} });
  }
  return challenges;
}
