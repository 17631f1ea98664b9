/** Which repositories an entry of the trust list is for. */
import { parseRegistry, usualRepository } from "@forkd/registry";

/**
 * In the form in which a pull names a repository. A key that is pinned for another spelling of it would not be
 * asked for. A registry alone stands for everything in it.
 */
export function usualPattern(pattern: string): string {
  if (pattern === "*") return pattern;
  const [host = "", ...path] = pattern.split("/");
  const registry = parseRegistry(host);
  const name = path.length === 0 ? "*" : path.join("/");
  return `${registry}/${name === "*" ? name : usualRepository(registry, name)}`;
}

export function fits(pattern: string, repository: string): boolean {
  if (pattern === "*") return true;
  return pattern.endsWith("/*") ? repository.startsWith(pattern.slice(0, -1)) : repository === pattern;
}
