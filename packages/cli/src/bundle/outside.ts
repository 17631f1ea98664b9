/** Which command lines the bundle does not run: those that need the packages of the daemon, of MCP or of registries. */

/**
 * The verbs whose modules import these packages, and the argument that makes them do so. `__complete` does so
 * only for one of the others. `tools/bundle-cli.mjs` fails if a verb is missing.
 */
export const outsideVerbs: Readonly<Record<string, string | undefined>> = {
  config: "config",
  doctor: "doctor",
  login: "login",
  logout: "logout",
  logs: "--daemon",
  mcp: "mcp",
  pull: "pull",
  push: "push",
  quickstart: "quickstart",
  search: "search",
  serve: "serve",
  __complete: undefined,
};

/** Looks at every argument: one too many costs a slower start, one too few would fail. */
export function isOutside(argv: readonly string[]): boolean {
  const words = Object.values(outsideVerbs);
  return argv.some((argument) => words.includes(argument));
}
