/** Words remedies for a model that has the tools of this server: one sentence per error. */
import { similarIn, wordRemedy } from "@forkd/contract/wire";
import type { AppError, ErrorCode, Remedy, RemedyWording } from "@forkd/contract";

const wording: RemedyWording = {
  advice: ({ text }) => text,

  list_snapshots: () => "Call list_snapshots to see which snapshots there are.",
  wait_for_snapshot: ({ tag }) => `Call get_snapshot with tag "${tag}" until its status is "ready".`,
  replace_snapshot: ({ tag }) => `Use another tag, or call delete_snapshot with tag "${tag}" first.`,
  build_again: ({ tag }) => `Call create_snapshot with tag "${tag}" and force true.`,
  remake_snapshot: ({ tag }) => `Call delete_snapshot with tag "${tag}", then make it again.`,
  verify_snapshots: () => "Ask the user to remove the broken snapshots and to build them again.",
  verify_snapshot: ({ tag }) => `Ask the user to run \`forkd verify ${tag}\`.`,
  show_verification: ({ tag }) => `Ask the user to run \`forkd verify ${tag}\` and to correct what failed.`,
  verify_branch: () => "Call branch_sandbox without n, and ask the user to verify the branch.",
  remove_dependents: ({ tag }) => `Call delete_snapshot with tag "${tag}" and cascade true.`,
  branch_with_mode: ({ mode }) => `Call branch_sandbox with mode "${mode}".`,

  list_sandboxes: () => "Call list_sandboxes to see which sandboxes there are.",
  list_commands: ({ id }) => `Call list_commands with sandbox_id "${id}".`,
  resume: ({ id }) => `Call resume_sandbox with sandbox_id "${id}".`,
  pause_and_resume: ({ ids }) => `Call pause_sandbox, then resume_sandbox, for ${ids.join(", ")}.`,
  kill_dependents: ({ ids }) => `Call kill_sandbox first for ${ids.join(", ")}.`,
  kill_children: ({ tag }) => `Call kill_sandbox for each sandbox of list_sandboxes with tag "${tag}".`,
  kill_some: ({ setting }) => `Call kill_sandbox for sandboxes that are not needed${orRaise(setting)}.`,
  pause_some: ({ setting }) =>
    `Call kill_sandbox or pause_sandbox for sandboxes that are not needed${orRaise(setting)}.`,
  ask_for_less: ({ setting }) => `Ask for fewer or smaller sandboxes${orRaise(setting)}.`,
  fork_another: ({ tag }) =>
    `Call spawn_sandboxes${tag === undefined ? "" : ` with snapshot_tag "${tag}"`} for a new sandbox.`,
  rewind_or_fork: ({ id, tag }) =>
    `Call rewind_sandbox with sandbox_id "${id}" and tag "${tag}" to start it again, or spawn_sandboxes with snapshot_tag "${tag}".`,
  show_logs: ({ id }) => `Read the resource forkd://sandboxes/${id ?? "{id}"}/console.`,
  allow_best_effort: () => "Leave the limit out.",
  open_port: ({ id, port }) => `Ask the user to run \`forkd port ${id} ${port}\`.`,
  give_port_token: ({ id, port }) => `Ask the user to run \`forkd port ${id} ${port}\`.`,

  pin_key: ({ repository }) => `Ask the user to run \`forkd trust pin ${repository} --key FILE\`.`,
  pull_and_rebuild: ({ reference }) => `Ask the user to run \`forkd pull ${reference} --rebuild\`.`,
  make_signing_key: () => "Ask the user to run `forkd signing-keys create`.",

  list_workspaces: () => "Ask the user to run `forkd workspace ls`.",
  delete_workspace: () => "Use another name.",
  keep_or_force: () => "Ask the user to save the workspace.",

  authenticate: () => "Ask the user for a key that `forkd keys create` made.",
  list_keys: () => "Ask the user to run `forkd keys ls`.",
  remove_key: () => "Use another name.",
  list_secrets: () => "Ask the user to run `forkd secrets ls`.",
  new_idempotency_key: () => "Call the tool again.",
  log_in: ({ registry }) => `Ask the user to log in to ${registry} with \`forkd login ${registry}\`.`,

  retry_later: ({ setting }) => `Try again in a moment${orRaise(setting)}.`,
  change_setting: ({ setting, to }) => `Ask the user to set the daemon's setting ${setting} to ${to}.`,
  install: ({ packages }) => `Ask the user to install ${packages.join(", ")} on the daemon's host.`,
  free_disk: () =>
    "Call delete_snapshot for snapshots that are not needed, or ask the user to run `forkd gc`.",
  clean_up: () => "Ask the user to run `forkd cleanup`.",
  run_doctor: () => "Ask the user to run `forkd doctor`.",
  make_guest_kernel: () => "Ask the user to run `forkd doctor --fix`.",
  show_daemon_log: () => "Ask the user to run `forkd logs --daemon`.",
  use_own_places: () => "Ask the user to check FORKD_DATA_DIR and FORKD_RUNTIME_DIR.",
  check_address: () => "Ask the user to check FORKD_URL, and that the daemon listens there.",
  try_tls: ({ url }) => `Ask the user to set FORKD_URL to ${url}.`,
  use_address: ({ url }) => `Ask the user to set FORKD_URL to ${url}.`,
  start_daemon: () => "Ask the user to run `forkd up`.",
  trust_certificate: () => "Ask the user to set FORKD_CA to the daemon's certificate.",
  move_data_back: ({ from, to }) => `Ask the user to move ${from} back to ${to}.`,
};

/** For errors that bring no remedy. */
const fallbacks: Partial<Record<ErrorCode, Remedy>> = {
  unauthenticated: { action: "authenticate" },
  sandbox_not_found: { action: "list_sandboxes" },
  snapshot_not_found: { action: "list_snapshots" },
  sandbox_dead: { action: "fork_another" },
  rate_limited: { action: "retry_later" },
  capacity_exhausted: { action: "pause_some" },
  disk_full: { action: "free_disk" },
  host_not_ready: { action: "run_doctor" },
  agent_unreachable: { action: "show_logs" },
  daemon_unreachable: { action: "start_daemon" },
};

function orRaise(setting: string | undefined): string {
  return setting === undefined ? "" : `, or ask the user to raise the daemon's setting ${setting}`;
}

/** The one remedy for an error, after the names that were perhaps meant. */
export function toolRemedy(error: AppError): string | undefined {
  const remedy = error.remedy ?? fallbacks[error.code];
  const words = remedy && wordRemedy(wording, remedy);
  const meant = similarIn(error.details).map((name) => `"${name}"`);
  if (meant.length === 0) return words;
  const question = `Did you mean ${meant.join(" or ")}?`;
  return words === undefined ? question : `${question} ${words}`;
}
