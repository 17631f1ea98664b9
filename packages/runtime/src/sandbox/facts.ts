/** What is true of a sandbox whichever machine it has, and where it can go back to. */
import type { AskedLimits, OnTimeout } from "@forkd/contract";
import type { StoredSnapshot } from "@forkd/store";
import type { GuestIdentity } from "./paths.ts";

export type SandboxFacts = {
  readonly id: string;
  readonly identity: GuestIdentity;
  /** variables that its user gave */
  readonly env: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
  readonly index: number;
  readonly createdAt: number;
  readonly workspace: string | undefined;
  /** name of whoever asked for it */
  readonly owner: string | undefined;
  /** what it is held to, whichever machine it has */
  readonly limits?: AskedLimits | undefined;
};

/** Beside the time to live; may be changed at any time. */
export type SandboxTimeouts = { idleSecs: number | undefined; onTimeout: OnTimeout; autoResume: boolean };

/** A state that was saved, and when. */
export type SavedState = { snapshot: StoredSnapshot; savedAt: number };

/** Variables of commands and kernels: the snapshot's, the sandbox's own name, the user's. */
export function childEnv(
  base: Readonly<Record<string, string>>,
  facts: Pick<SandboxFacts, "id" | "index" | "env">,
): Record<string, string> {
  return { ...base, FORKD_SANDBOX_ID: facts.id, FORKD_INDEX: String(facts.index), ...facts.env };
}
