/** What each setting means, for `forkd config` and docs/reference/configuration.md. The schema in config.ts says what it may be. */

export type SettingMeaning = {
  /** for a person: a noun phrase, units in it */
  readonly meaning: string;
  /** how it may be written, where the schema's own words are not enough */
  readonly allowed?: string;
  /** the default in words, where it depends on the host */
  readonly usually?: string;
};

/** Every setting has an entry: tools/check-docs.mjs holds that. */
export const settingMeanings: Readonly<Record<string, SettingMeaning>> = {
  data_dir: {
    meaning: "directory of snapshots, images, sandboxes, token and config.json; not in config.json",
    usually: "/var/lib/forkd for root, else forkd in $XDG_DATA_HOME or ~/.local/share",
  },
  runtime_dir: {
    meaning: "directory of sockets; at most 60 characters, best on a tmpfs",
    usually: "/run/forkd for root, else forkd in $XDG_RUNTIME_DIR or /tmp/forkd-UID",
  },
  socket: { meaning: "the daemon's unix socket" },
  listen: { meaning: "address and port for HTTP", allowed: '"off" or IP:PORT' },
  guest_dir: {
    meaning: "directory of the guest agent and the interpreters' kernels",
    usually: "guest of the tree",
  },
  accelerator: { meaning: "what runs guests; auto boots a guest to see whether KVM works" },
  qemu_path: { meaning: "the QEMU program" },
  pool_size: { meaning: "machines started ahead per snapshot in use" },
  fork_parallelism: { meaning: "children made at the same time", usually: "cores, at least 2" },
  max_sandboxes: { meaning: "limit of live sandboxes" },
  branch_concurrency: { meaning: "branches under way at the same time; one more is refused" },
  memory_cache_mib: { meaning: "MiB on disk for flat memory images of layered snapshots" },
  boot_timeout_secs: { meaning: "seconds that a guest may take to boot" },
  ready_timeout_secs: { meaning: "seconds that a child may take to answer" },
  machines_cgroup: {
    meaning:
      "where machines with limits get their control groups (version 2): below the daemon's own, or in a group for machines alone",
    allowed: '"own", or a path seen from the daemon\'s own group, such as ../forkd-machines.service',
  },
  default_memory_limit_mib: {
    meaning: "MiB of host memory for every sandbox that is not given a limit; 0 for none",
  },
  default_cpu_percent: {
    meaning: "percent of one core for every sandbox that is not given a limit; 0 for none",
  },
  default_disk_limit_mib: { meaning: "MiB of disk for every sandbox that is not given a limit; 0 for none" },
  max_memory_mib: { meaning: "MiB that all running sandboxes may have together; 0 for no limit" },
  max_disk_mib: { meaning: "MiB that the disks of all sandboxes may become together; 0 for no limit" },
  memory_reserve_mib: { meaning: "MiB of the host's memory that forks leave alone" },
  disk_reserve_mib: { meaning: "MiB of the host's disk that forks leave alone" },
  memory_overcommit: { meaning: "a new child is expected to write one part in so many of its memory" },
  max_pending_forks: { meaning: "children asked for and not yet started; more are refused" },
  gc_interval_secs: {
    meaning: "seconds between collections of branches by the next two; 0 for never",
  },
  retention_max_age_days: {
    meaning: "days after which a branch that nothing uses is collected; 0 leaves the condition out",
  },
  retention_keep_last: {
    meaning: "newest branches that collections leave alone; 0 leaves the condition out",
  },
  auth: { meaning: "whether TCP asks for a token; off only on a loopback address" },
  token_file: { meaning: "file with the token; default: token in the data directory", allowed: "a path" },
  allowed_hosts: {
    meaning: "names by which the daemon may be called on TCP: name, name:port or *.suffix",
    allowed: "names, comma-separated",
  },
  tls_cert: {
    meaning: "certificate for TCP, PEM; read anew when it changes and on SIGHUP",
    allowed: "a path",
  },
  tls_key: {
    meaning: "private key of the certificate, PEM; read anew when it changes and on SIGHUP",
    allowed: "a path",
  },
  allow_plain_http: {
    meaning: "whether to listen without TLS on an address that others can reach",
    allowed: "true or false",
  },
  max_connections: { meaning: "connections on TCP at the same time" },
  max_connections_per_address: {
    meaning:
      "of these, from one address (IPv6: /64) other than this machine's own; 0 for no limit, as behind a proxy on another machine",
  },
  rate_limit_per_second: {
    meaning: "requests per second of one caller over TCP in the long run; 0 for no limit",
  },
  rate_limit_burst: { meaning: "requests of one caller over TCP at once" },
  audit_log: {
    meaning: "file of the audit log; default: audit.jsonl in the data directory",
    allowed: '"off" or a path',
  },
  audit_reads: { meaning: "whether requests that only look are in the audit log", allowed: "true or false" },
  audit_commands: {
    meaning: "whether commands and code are in the audit log in full",
    allowed: "true or false",
  },
  log_level: { meaning: "least important records that are logged" },
  log_file: {
    meaning:
      "where the log goes; `forkd up` uses daemon.log in the data directory unless told; opened anew on SIGHUP",
    allowed: '"stderr" or a path',
  },
  log_max_mib: { meaning: "MiB at which the log file is rotated; 0 leaves that to others" },
  log_keep: { meaning: "rotated log files that are kept" },
  on_stop: {
    meaning:
      "what becomes of running sandboxes when the daemon stops: keep them for the next one, or save workspaces and end the rest",
    allowed: "keep or stop",
  },
  nice: {
    meaning:
      "scheduling priority of the daemon, not of the machines; below 0 it goes before them, where that is allowed",
  },
  drain_secs: { meaning: "seconds that running requests get when the daemon stops" },
};
