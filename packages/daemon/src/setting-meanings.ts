/** What each setting means, for `forkd config` and docs/configuration.md. The schema in config.ts says what it may be. */

export type SettingMeaning = {
  /** for a person: a noun phrase, units in it */
  readonly meaning: string;
  /** how it may be written, where the schema's own words are not enough */
  readonly allowed?: string;
};

/** Every setting has an entry: tools/check-docs.mjs holds that. */
export const settingMeanings: Readonly<Record<string, SettingMeaning>> = {
  data_dir: {
    meaning: "directory of snapshots, images, sandboxes, token and config.json; not in config.json",
  },
  runtime_dir: { meaning: "directory of sockets; at most 60 characters, best on a tmpfs" },
  socket: { meaning: "the daemon's unix socket" },
  listen: { meaning: "address and port for HTTP", allowed: '"off" or HOST:PORT' },
  guest_dir: { meaning: "directory of the guest agent and the interpreters' kernels" },
  accelerator: { meaning: "what runs guests; auto boots a guest to see whether KVM works" },
  qemu_path: { meaning: "the QEMU program" },
  pool_size: { meaning: "machines started ahead per snapshot in use" },
  fork_parallelism: { meaning: "children made at the same time" },
  max_sandboxes: { meaning: "limit of live sandboxes" },
  branch_concurrency: { meaning: "branches under way at the same time; one more is refused" },
  memory_cache_mib: { meaning: "MiB on disk for flat memory images of layered snapshots" },
  boot_timeout_secs: { meaning: "seconds that a guest may take to boot" },
  ready_timeout_secs: { meaning: "seconds that a child may take to answer" },
  log_level: { meaning: "least important records that are logged" },
  log_file: {
    meaning:
      "where the log goes; `forkd up` uses daemon.log in the data directory unless told; opened anew on SIGHUP",
    allowed: '"stderr" or a path',
  },
  log_max_mib: { meaning: "MiB at which the log file is rotated; 0 leaves that to others" },
  log_keep: { meaning: "rotated log files that are kept" },
  drain_secs: { meaning: "seconds that running requests get when the daemon stops" },
};
