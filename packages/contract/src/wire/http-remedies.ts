/** Words remedies for callers of the HTTP API. */
import { wordRemedy, type Remedy, type RemedyWording } from "./remedies.ts";

const wording: RemedyWording = {
  advice: ({ text }) => text,

  list_snapshots: () => "GET /v1/snapshots lists the snapshots.",
  wait_for_snapshot: ({ tag }) => `Wait until GET /v1/snapshots/${tag}/info reports it as ready.`,
  replace_snapshot: ({ tag }) =>
    `Use another tag, or remove the snapshot with DELETE /v1/snapshots/${tag} first.`,
  build_again: ({ tag }) => `Build it again: POST /v1/snapshots with tag "${tag}" and force.`,
  remake_snapshot: ({ tag }) => `Remove it with DELETE /v1/snapshots/${tag}, then make it again.`,
  verify_snapshots: () =>
    "Remove them with DELETE /v1/snapshots/{tag} and build them again; GET /v1/snapshots/{tag}/info?verify=true checks one.",
  verify_snapshot: ({ tag }) => `POST /v1/snapshots/${tag}/verify checks it.`,
  show_verification: ({ tag }) =>
    `GET /v1/snapshots/${tag}/info has the result with its remedies; POST /v1/snapshots/${tag}/verify checks it again.`,
  verify_branch: () =>
    "Branch without n, check the branch with POST /v1/snapshots/{tag}/verify, then fork it with POST /v1/sandboxes.",
  remove_dependents: ({ tag }) => `DELETE /v1/snapshots/${tag}?cascade=true removes them too.`,
  branch_with_mode: ({ mode }) => `Branch with mode "${mode}".`,

  list_sandboxes: () => "GET /v1/sandboxes lists the sandboxes.",
  list_commands: ({ id }) => `GET /v1/sandboxes/${id}/execs lists its commands.`,
  resume: ({ id }) => `POST /v1/sandboxes/${id}/resume resumes it.`,
  pause_and_resume: ({ ids }) =>
    `POST /v1/sandboxes/{id}/pause, then POST /v1/sandboxes/{id}/resume, for ${ids.join(", ")}.`,
  kill_dependents: ({ ids }) => `Kill the sandboxes first: DELETE /v1/sandboxes/{id} for ${ids.join(", ")}.`,
  kill_children: ({ tag }) => `DELETE /v1/sandboxes?tag=${tag} kills them.`,
  kill_some: ({ setting }) => `Kill sandboxes that are not needed${orRaise(setting)}.`,
  pause_some: ({ setting }) => `Pause or kill sandboxes that are not needed${orRaise(setting)}.`,
  ask_for_less: ({ setting }) => `Ask for fewer or smaller ones${orRaise(setting)}.`,
  fork_another: ({ tag }) => `Fork a new sandbox with POST /v1/sandboxes${from(tag)}.`,
  rewind_or_fork: ({ id, tag }) =>
    `POST /v1/sandboxes/${id}/rewind with {"to": "${tag}"} starts it again; POST /v1/sandboxes forks a new one.`,
  show_logs: ({ id }) => `GET /v1/sandboxes/${id ?? "{id}"}/logs has the console of the guest.`,
  allow_best_effort: () => "Leave the limit out, or set limits.best_effort to go without it.",
  open_port: ({ id, port }) => `POST /v1/sandboxes/${id}/ports with {"port": ${port}} opens it.`,
  give_port_token: () =>
    "Open the address once with ?forkd_token=TOKEN, or send the token as X-Forkd-Port-Token. The answer to POST /v1/sandboxes/{id}/ports has it.",

  pin_key: ({ repository }) =>
    `POST /v1/hub/trust pins the publisher's public key for "${repository}", or sets another policy for it.`,
  pull_and_rebuild: ({ reference }) =>
    `POST /v1/hub/pull with "rebuild": true builds "${reference}" from its recipe.`,
  make_signing_key: () => "Make an Ed25519 key with any tool, and sign with it.",

  list_workspaces: () => "GET /v1/workspaces lists the workspaces.",
  delete_workspace: ({ name }) => `Use another name, or delete it with DELETE /v1/workspaces/${name}.`,
  keep_or_force: () =>
    'Send {"sandboxes": "keep"} to leave it running, or add "force": true to lose what was not saved.',

  authenticate: () => "Send the daemon's token, or a key, as `Authorization: Bearer TOKEN`.",
  list_keys: () => "GET /v1/keys lists the keys.",
  remove_key: ({ name }) => `Use another name, or remove the key with DELETE /v1/keys/${name}.`,
  list_secrets: ({ name }) =>
    `GET /v1/secrets lists the secrets; POST /v1/secrets sets ${name === undefined ? "one" : `"${name}"`}.`,
  new_idempotency_key: () => "Use a new Idempotency-Key for a new request.",
  log_in: ({ registry }) => `Send credentials for ${registry} in "auth".`,

  retry_later: ({ setting }) => `Try again in a moment${orRaise(setting)}.`,
  change_setting: ({ setting, to }) => `Set the daemon's setting ${setting} to ${to}.`,
  install: ({ packages, setting }) =>
    `Install ${packages.join(", ")} on the daemon's host${setting === undefined ? "" : `, or set the daemon's setting ${setting}`}.`,
  free_disk: ({ setting }) =>
    `Free space with POST /v1/gc and DELETE /v1/snapshots/{tag}${setting === undefined ? "" : `, or change the daemon's setting ${setting}`}.`,
  clean_up: () => "POST /v1/cleanup removes it.",
  run_doctor: () => "GET /v1/doctor reports what the host lacks.",
  make_guest_kernel: () => "The first build makes one from a Debian package.",
  show_daemon_log: () => "The daemon's log has more.",
  use_own_places: () =>
    "Use the socket of the daemon that is meant; a second daemon needs its own runtime directory and address.",
  start_daemon: () => "Start the daemon.",
  check_address: () => "Check the address of the daemon.",
  use_address: ({ url }) => `Use ${url}.`,
  try_tls: ({ url }) => `If the daemon uses TLS, use ${url}.`,
  trust_certificate: () => "Trust the certificate of the daemon, and use one of the host names in it.",
  move_data_back: ({ from: now, to }) =>
    `Move ${now} back to ${to}, shut its daemon and sandboxes down, then move it again.`,
};

function orRaise(setting: string | undefined): string {
  return setting === undefined ? "" : `, or raise the daemon's setting ${setting}`;
}

function from(tag: string | undefined): string {
  return tag === undefined ? "" : ` from snapshot "${tag}"`;
}

export function httpRemedy(remedy: Remedy): string {
  return wordRemedy(wording, remedy);
}
