/**
 * How long the host waits for VMMs, guests and helpers. Every wait for one of them has a deadline from here;
 * tools/check-waits.mjs refuses waits that go around it. Two settings scale them (`vmm_timeout_secs`,
 * `guest_timeout_secs`). The side that misses a deadline bears the cost:
 *
 *   VMM     It is killed, and its exit says why. The sandbox is dead or paused from its last saved state.
 *   guest   The call fails with `agent_unreachable`. The machine keeps running.
 *   helper  It is killed, and the capture fails with `engine_failed`.
 */

export type VmmDeadlines = {
  /** ms for the answer to one command; `stop` waits for the disk requests in flight, also on a slow disk */
  readonly commandMs: number;
  /** ms from the start of the process to its greeting; a busy host starts many at a time */
  readonly greetingMs: number;
  /** ms to load device state, which is a few hundred KiB */
  readonly loadMs: number;
  /** ms in which a background job on the disk must make progress; a throttled disk is slow but not idle */
  readonly jobMs: number;
  /** ms between two looks at the progress of a job */
  readonly jobCheckMs: number;
  /** ms from SIGKILL to the exit; the kernel may have to free many GiB */
  readonly exitMs: number;
};

export const vmmDeadlines: VmmDeadlines = {
  commandMs: 30_000,
  greetingMs: 60_000,
  loadMs: 60_000,
  jobMs: 120_000,
  jobCheckMs: 5_000,
  exitMs: 60_000,
};

export type GuestDeadlines = {
  /** ms for requests that an agent answers at once; a busy emulated guest needs seconds */
  readonly replyMs: number;
  /** ms for sync(2), which writes back the whole page cache of the guest */
  readonly syncMs: number;
  /** ms without progress of an operation after which the agent is asked whether it still answers */
  readonly quietMs: number;
  /** ms for that answer */
  readonly pingMs: number;
  /** ms without progress after which an operation fails although the agent answers, such as `remove` of a tree */
  readonly stallMs: number;
  /** ms beyond the timeout of a command, which the agent enforces, until its exit must be known */
  readonly graceMs: number;
  /** ms to wait for the exit of a process that was killed; one that is stuck in the guest's kernel never exits */
  readonly killMs: number;
};

export const guestDeadlines: GuestDeadlines = {
  replyMs: 30_000,
  syncMs: 120_000,
  quietMs: 15_000,
  pingMs: 10_000,
  stallMs: 600_000,
  graceMs: 10_000,
  killMs: 5_000,
};

/** `commandMs` as set by the user, and the other deadlines in proportion. */
export function vmmDeadlinesOf(commandMs: number): VmmDeadlines {
  return scaled(vmmDeadlines, commandMs / vmmDeadlines.commandMs);
}

/** `replyMs` as set by the user, and the other deadlines in proportion. */
export function guestDeadlinesOf(replyMs: number): GuestDeadlines {
  return scaled(guestDeadlines, replyMs / guestDeadlines.replyMs);
}

function scaled<T extends Readonly<Record<string, number>>>(deadlines: T, factor: number): T {
  // Cast: the same keys with other numbers.
  return Object.fromEntries(
    Object.entries(deadlines).map(([name, ms]) => [name, Math.max(1, Math.round(ms * factor))]),
  ) as T;
}

/** ms for one answer of forkd-pages; the longest copies the whole memory of a machine to a slow disk */
export const helperMs = 600_000;
