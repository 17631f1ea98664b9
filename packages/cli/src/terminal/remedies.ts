/** Words remedies for the command line: one sentence per error. */
import { parseRemedy, similarIn, wordRemedy } from "@forkd/contract/wire";
import type { Check, ErrorBody, ErrorCode, Remedy, RemedyWording } from "@forkd/contract";

const wording: RemedyWording = {
  advice: ({ text }) => text,

  list_snapshots: () => "Run `forkd images` to list snapshots.",
  wait_for_snapshot: () => "Run `forkd images` to see when it is ready.",
  replace_snapshot: ({ tag }) => `Use another tag, or run \`forkd rmi ${tag}\` to remove it.`,
  build_again: () => "Build it again with --force.",
  remake_snapshot: ({ tag }) => `Run \`forkd rmi ${tag}\` to remove it, then make it again.`,
  verify_snapshots: () =>
    "Run `forkd rmi TAG` and build them again; `forkd info --verify TAG` checks the contents of one.",
  verify_snapshot: ({ tag }) => `Run \`forkd verify ${tag}\` to check it.`,
  show_verification: ({ tag }) =>
    `Run \`forkd verify ${tag}\` to see what failed and what helps; then correct it and build again.`,
  verify_branch: () => "Branch without -n, check the branch with `forkd verify TAG`, then fork it.",
  remove_dependents: ({ tag }) => `Run \`forkd rmi --cascade ${tag}\` to remove them too.`,
  branch_with_mode: ({ mode }) => `Branch with --mode ${mode}.`,

  list_sandboxes: () => "Run `forkd ls --all` to list sandboxes.",
  list_commands: ({ id }) => `Run \`forkd ps ${id}\` to list its commands.`,
  resume: ({ id }) => `Run \`forkd resume ${id}\` to resume it.`,
  pause_and_resume: ({ ids }) =>
    `Run \`forkd pause ${ids.join(" ")}\`, then \`forkd resume ${ids.join(" ")}\`.`,
  kill_dependents: ({ ids }) => `Run \`forkd kill ${ids.join(" ")}\` to kill the sandboxes first.`,
  kill_children: ({ tag }) => `Run \`forkd kill --tag ${tag}\` to kill them.`,
  kill_some: ({ setting }) => `Kill sandboxes that are not needed with \`forkd kill ID\`${orRaise(setting)}.`,
  pause_some: ({ setting }) =>
    `Pause or kill sandboxes that are not needed with \`forkd pause ID\` or \`forkd kill ID\`${orRaise(setting)}.`,
  ask_for_less: ({ setting }) => `Ask for fewer or smaller ones${orRaise(setting)}.`,
  fork_another: ({ tag = "TAG" }) => `Run \`forkd fork ${tag}\` to fork a new sandbox.`,
  rewind_or_fork: ({ id, tag }) =>
    `Run \`forkd rewind ${id} --to ${tag}\` to start it again, or \`forkd fork ${tag}\` to fork a new sandbox.`,
  show_logs: ({ id = "ID" }) => `Run \`forkd logs ${id}\` to see the console of the guest.`,
  allow_best_effort: () => "Leave the limit out, or use --best-effort to go without it.",
  open_port: ({ id, port }) => `Run \`forkd port ${id} ${port}\` to open it.`,
  give_port_token: ({ id, port }) => `Run \`forkd port ${id} ${port}\` to see its address with the token.`,

  pin_key: ({ repository }) =>
    `Run \`forkd trust pin ${repository} --key FILE\` with the publisher's public key, or set another policy with \`forkd trust policy\`.`,
  pull_and_rebuild: ({ reference }) =>
    `Run \`forkd pull ${reference} --rebuild\` to build it from its recipe.`,
  make_signing_key: () => "Run `forkd signing-keys create` to create one.",

  list_workspaces: () => "Run `forkd workspace ls` to list workspaces.",
  delete_workspace: ({ name }) => `Use another name, or run \`forkd workspace delete ${name}\` to delete it.`,
  keep_or_force: () =>
    "Leave it running with `forkd down --keep`, or lose what was not saved with `forkd down --stop --force`.",

  authenticate: () =>
    "Set FORKD_TOKEN to the daemon's token, or to a key that `forkd keys create NAME` made on the daemon's host.",
  list_keys: () => "Run `forkd keys ls` to list keys.",
  remove_key: ({ name }) => `Use another name, or run \`forkd keys rm ${name}\` to remove the key.`,
  list_secrets: ({ name = "NAME" }) =>
    `Run \`forkd secrets ls\` to list secrets, or \`forkd secrets set ${name} --host HOST\` to set one.`,
  new_idempotency_key: () => "Use a new --idempotency-key, or repeat the first request exactly.",
  log_in: ({ registry }) => `Run \`forkd login ${registry}\` with an account that has access.`,

  retry_later: ({ setting }) => `Try again in a moment${orRaise(setting)}.`,
  change_setting: ({ setting, to }) => `Set ${variable(setting)} to ${to}.`,
  install: ({ packages, setting }) =>
    `Run \`apt-get install ${packages.join(" ")}\`${setting === undefined ? "" : `, or set ${variable(setting)}`}.`,
  free_disk: ({ setting }) =>
    `Free space with \`forkd gc\` and \`forkd rmi TAG\`${setting === undefined ? "" : `, or set ${variable(setting)} to a larger disk`}.`,
  clean_up: () => "Run `forkd cleanup` to remove it.",
  run_doctor: () => "Run `forkd doctor` to see what is missing.",
  make_guest_kernel: () => "Run `forkd doctor --fix` to make one now; the first build makes one, too.",
  show_daemon_log: () => "Run `forkd logs --daemon` to read the daemon's log.",
  use_own_places: () =>
    "Set FORKD_RUNTIME_DIR and FORKD_LISTEN too for a second daemon, or unset FORKD_DATA_DIR to use this one.",
  check_address: () => "Check FORKD_URL, and that the daemon listens there.",
  try_tls: ({ url }) => `If the daemon uses TLS, set FORKD_URL to ${url}.`,
  use_address: ({ url }) => `Set FORKD_URL to ${url}.`,
  start_daemon: () => "Start the daemon with `forkd up`, or check FORKD_SOCKET and FORKD_URL.",
  trust_certificate: () =>
    "Set FORKD_CA to a PEM file with the daemon's certificate or its authority, and use a host name of the certificate in FORKD_URL.",
  move_data_back: ({ from, to }) =>
    `Run \`mv ${from} ${to}\` and \`forkd down --stop\` to stop the machines, then move the directory again.`,
};

/** For errors that bring no remedy. */
const fallbacks: Partial<Record<ErrorCode, string>> = {
  unauthenticated: wording.authenticate({ action: "authenticate" }),
  key_not_found: wording.list_keys({ action: "list_keys" }),
  secret_not_found: wording.list_secrets({ action: "list_secrets" }),
  rate_limited: wording.retry_later({ action: "retry_later", setting: "rate_limit_per_second" }),
  sandbox_not_found: wording.list_sandboxes({ action: "list_sandboxes" }),
  workspace_not_found: wording.list_workspaces({ action: "list_workspaces" }),
  snapshot_not_found: wording.list_snapshots({ action: "list_snapshots" }),
  recipe_not_found: "Give a directory with a recipe.json, or the name of a bundled recipe.",
  snapshot_exists: wording.replace_snapshot({ action: "replace_snapshot", tag: "TAG" }),
  snapshot_writing: wording.wait_for_snapshot({ action: "wait_for_snapshot", tag: "TAG" }),
  snapshot_failed: wording.remake_snapshot({ action: "remake_snapshot", tag: "TAG" }),
  snapshot_in_use: wording.kill_children({ action: "kill_children", tag: "TAG" }),
  snapshot_incompatible: "Build it again on this host with --force.",
  unsafe_snapshot: wording.verify_snapshot({ action: "verify_snapshot", tag: "TAG" }),
  snapshot_corrupt: wording.remake_snapshot({ action: "remake_snapshot", tag: "TAG" }),
  idempotency_mismatch: wording.new_idempotency_key({ action: "new_idempotency_key" }),
  sandbox_paused: wording.resume({ action: "resume", id: "ID" }),
  sandbox_dead: wording.fork_another({ action: "fork_another" }),
  agent_unreachable: wording.show_logs({ action: "show_logs" }),
  capacity_exhausted: wording.pause_some({ action: "pause_some" }),
  disk_full: wording.free_disk({ action: "free_disk" }),
  host_not_ready: wording.run_doctor({ action: "run_doctor" }),
  data_dir_in_use: "Stop the other daemon with `forkd down`.",
  daemon_unreachable: wording.start_daemon({ action: "start_daemon" }),
};

function variable(setting: string): string {
  return `FORKD_${setting.toUpperCase()}`;
}

/** The value may come from the file, a variable or a flag. */
function orRaise(setting: string | undefined): string {
  return setting === undefined ? "" : `, or raise ${setting}; \`forkd config\` shows where it is set`;
}

export function cliRemedy(remedy: Remedy): string {
  return wordRemedy(wording, remedy);
}

/** The one remedy for an error, after the names that were perhaps meant. */
export function remedyOf(body: ErrorBody): string | undefined {
  const own = parseRemedy(body.remedy);
  const remedy = own === undefined ? new Map(Object.entries(fallbacks)).get(body.code) : cliRemedy(own);
  const meant = similarIn(body.details).map((name) => `"${name}"`);
  if (meant.length === 0) return remedy;
  const last = meant.slice(-2).join(" or ");
  const question = `Did you mean ${[...meant.slice(0, -2), last].join(", ")}?`;
  return remedy === undefined ? question : `${question} ${remedy}`;
}

/** The remedy of a check of the doctor. */
export function checkRemedy({ remedy, remedy_data: data }: Check): string | undefined {
  const known = data && parseRemedy({ ...data, text: remedy });
  return known === undefined ? remedy : cliRemedy(known);
}
