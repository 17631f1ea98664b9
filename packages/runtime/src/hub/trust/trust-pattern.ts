/** Which repositories an entry of the trust list is for. */
import { parseRegistry } from "@forkd/registry";

/**
 * In the form in which a pull names a repository. A key that is pinned for another spelling of it would not be
 * asked for. A registry alone stands for everything in it.
 */
export function usualPattern(pattern: string): string {
  if (pattern === "*") return pattern;
  const [host = "", ...path] = pattern.split("/");
  const registry = parseRegistry(host);
  if (path.length === 0) return `${registry}/*`;
  const isOfficial = registry === "docker.io" && path.length === 1 && path[0] !== "*";
  return [registry, ...(isOfficial ? ["library"] : []), ...path].join("/");
}

export function fits(pattern: string, repository: string): boolean {
  if (pattern === "*") return true;
  return pattern.endsWith("/*") ? repository.startsWith(pattern.slice(0, -1)) : repository === pattern;
}
