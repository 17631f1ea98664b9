/** What a program that uses the SDK can do about an error. */
import { wordRemedy, type AppError } from "@forkd/contract/wire";
import type { RemedyWording } from "@forkd/contract";

const wording: RemedyWording = {
  advice: ({ text }) => text,

  list_snapshots: () => "Call `forkd.snapshots.list()` to list snapshots.",
  wait_for_snapshot: ({ tag }) => `Call \`forkd.snapshots.ready("${tag}")\` to wait for it.`,
  replace_snapshot: ({ tag }) => `Use another tag, or call \`forkd.snapshots.remove("${tag}")\` first.`,
  build_again: ({ tag }) => `Build "${tag}" again with \`force\`.`,
  remake_snapshot: ({ tag }) => `Call \`forkd.snapshots.remove("${tag}")\`, then make it again.`,
  verify_snapshots: () =>
    "Remove them with `forkd.snapshots.remove(tag)` and build them again; `forkd.snapshots.info(tag, { verify: true })` checks one.",
  verify_snapshot: ({ tag }) => `Call \`forkd.snapshots.verify("${tag}")\` to check it.`,
  show_verification: ({ tag }) =>
    `Read \`verification\` of \`forkd.snapshots.info("${tag}")\` for what failed, and call \`forkd.snapshots.verify("${tag}")\` to check it again.`,
  verify_branch: () =>
    "Branch without `n`, check the branch with `forkd.snapshots.verify(tag)`, then fork it.",
  remove_dependents: ({ tag }) =>
    `Call \`forkd.snapshots.remove("${tag}", { cascade: true })\` to remove them too.`,
  branch_with_mode: ({ mode }) => `Branch with \`mode: "${mode}"\`.`,

  list_sandboxes: () => "Call `forkd.sandboxes.list()` to list sandboxes.",
  list_commands: () => "Call `sandbox.commands.list()` to list its commands.",
  resume: () => "Call `sandbox.resume()` to resume it.",
  pause_and_resume: ({ ids }) =>
    `Call \`sandbox.pause()\`, then \`sandbox.resume()\`, for ${ids.join(", ")}.`,
  kill_dependents: ({ ids }) => `Call \`forkd.sandboxes.kill(id)\` first for ${ids.join(", ")}.`,
  kill_children: ({ tag }) =>
    `Kill the sandboxes of \`forkd.sandboxes.list({ tag: "${tag}" })\` with \`forkd.sandboxes.kill(id)\`.`,
  kill_some: ({ setting }) => `Kill sandboxes that are not needed${orRaise(setting)}.`,
  pause_some: ({ setting }) => `Pause or kill sandboxes that are not needed${orRaise(setting)}.`,
  ask_for_less: ({ setting }) => `Ask for fewer or smaller ones${orRaise(setting)}.`,
  fork_another: ({ tag }) =>
    `Call \`Sandbox.create(${tag === undefined ? "tag" : `"${tag}"`})\` to fork a new sandbox.`,
  rewind_or_fork: ({ tag }) =>
    `Call \`sandbox.rewind("${tag}")\` to start it again, or \`Sandbox.create("${tag}")\` to fork a new sandbox.`,
  show_logs: () => "Call `sandbox.logs()` to read the console of the guest.",
  allow_best_effort: () => "Leave the limit out, or set `limits.bestEffort` to go without it.",
  open_port: ({ port }) => `Call \`sandbox.ports.open(${port})\` to open it.`,
  give_port_token: ({ port }) => `Call \`sandbox.ports.open(${port})\` to get its token.`,

  pin_key: ({ repository }) =>
    `Call \`forkd.trust.pin("${repository}", publicKey)\` with the publisher's public key, or set another policy with \`forkd.trust.setPolicy()\`.`,
  pull_and_rebuild: ({ reference }) =>
    `Pull "${reference}" with \`rebuild: true\` to build it from its recipe.`,
  make_signing_key: () => "Make an Ed25519 key with any tool, and sign with it.",

  list_workspaces: () => "Call `forkd.workspaces.list()` to list workspaces.",
  delete_workspace: ({ name }) => `Use another name, or call \`forkd.workspaces.remove("${name}")\`.`,
  keep_or_force: () =>
    'Call `forkd.shutdown({ sandboxes: "keep" })` to leave it running, or add `force` to lose what was not saved.',

  authenticate: () => "Connect with the `token` of the daemon or of a key, or set FORKD_TOKEN.",
  list_keys: () => "Call `forkd.keys.list()` to list keys.",
  remove_key: ({ name }) => `Use another name, or call \`forkd.keys.remove("${name}")\`.`,
  list_secrets: ({ name }) =>
    `Call \`forkd.secrets.list()\` to list secrets, or \`forkd.secrets.set(${name === undefined ? "name" : `"${name}"`}, …)\` to set one.`,
  new_idempotency_key: () => "Use a new `idempotencyKey` for a new request.",
  log_in: ({ registry }) => `Give credentials for ${registry} in \`auth\`.`,

  retry_later: ({ setting }) => `Try again in a moment${orRaise(setting)}.`,
  change_setting: ({ setting, to }) => `Set the daemon's setting ${setting} to ${to}.`,
  install: ({ packages, setting }) =>
    `Install ${packages.join(", ")} on the daemon's host${setting === undefined ? "" : `, or set the daemon's setting ${setting}`}.`,
  free_disk: ({ setting }) =>
    `Free space with \`forkd.gc()\` and \`forkd.snapshots.remove(tag)\`${setting === undefined ? "" : `, or change the daemon's setting ${setting}`}.`,
  clean_up: () => "Call `forkd.cleanup()` to remove it.",
  run_doctor: () => "Call `forkd.doctor()` to see what the host lacks.",
  make_guest_kernel: () => "Build a snapshot: the first build makes one.",
  show_daemon_log: () => "Read the daemon's log.",
  use_own_places: () =>
    "Connect with the `socket` of the daemon that is meant; a second daemon needs its own runtime directory and address.",
  check_address: () => "Check the `url`, and that the daemon listens there.",
  try_tls: ({ url }) => `If the daemon uses TLS, connect with the \`url\` ${url}.`,
  use_address: ({ url }) => `Connect with the \`url\` ${url}.`,
  start_daemon: () => "Start the daemon, or connect with its `socket` or `url`.",
  trust_certificate: () =>
    "Connect with a `caFile` that has the daemon's certificate or its authority, and with a host name of the certificate.",
  move_data_back: ({ from, to }) =>
    `Move ${from} back to ${to}, shut its daemon and sandboxes down, then move it again.`,
};

function orRaise(setting: string | undefined): string {
  return setting === undefined ? "" : `, or raise the daemon's setting ${setting}`;
}

/** The remedy of an error as a sentence about this SDK; undefined if it has none. */
export function remedyText({ remedy }: AppError): string | undefined {
  return remedy && wordRemedy(wording, remedy);
}
