/** The default directories of a daemon: one rule for daemon, CLI and SDK. Pure. */

export type DirectoryFacts = {
  env: Readonly<Record<string, string | undefined>>;
  /** of the user; 0 is root */
  uid: number;
  home: string;
};

/** Snapshots, images, sandboxes, token. */
export function defaultDataDir({ env, uid, home }: DirectoryFacts): string {
  if (env["FORKD_DATA_DIR"]) return env["FORKD_DATA_DIR"];
  if (uid === 0) return "/var/lib/forkd";
  return `${env["XDG_DATA_HOME"] || `${home}/.local/share`}/forkd`;
}

/** Sockets: a short path, because the length of the address of a socket is limited. */
export function defaultRuntimeDir({ env, uid }: DirectoryFacts): string {
  if (env["FORKD_RUNTIME_DIR"]) return env["FORKD_RUNTIME_DIR"];
  if (uid === 0) return "/run/forkd";
  return env["XDG_RUNTIME_DIR"] ? `${env["XDG_RUNTIME_DIR"]}/forkd` : `/tmp/forkd-${uid}`;
}
