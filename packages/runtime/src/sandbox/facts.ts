/** What never changes about a sandbox, whichever machine it has; its timeouts; its saved state. */
import type { AskedLimits, OnTimeout, SandboxInfo } from "@forkd/contract";
import type { StoredSnapshot } from "@forkd/store";
import type { SandboxNetwork } from "../network/sandbox-network.ts";
import type { GuestIdentity } from "./paths.ts";

export type SandboxFacts = {
  readonly id: string;
  readonly identity: GuestIdentity;
  /** variables that the user gave */
  readonly env: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
  readonly index: number;
  readonly createdAt: number;
  readonly workspace: string | undefined;
  /** name of the caller who made it */
  readonly owner: string | undefined;
  /** limits of every machine that it gets */
  readonly limits?: AskedLimits | undefined;
  /** what it looked like, if an earlier daemon saw its end */
  readonly shape?: SandboxShape | undefined;
};

export type SandboxShape = Pick<SandboxInfo, "vcpus" | "memory_mib" | "accelerator" | "languages">;

/** Beside the time to live. They may be changed at any time. */
export type SandboxTimeouts = {
  readonly idleSecs: number | undefined;
  readonly onTimeout: OnTimeout;
  readonly autoResume: boolean;
};

export const noTimeouts: SandboxTimeouts = { idleSecs: undefined, onTimeout: "kill", autoResume: false };

/** A field that is left out stays as it is; null removes the idle timeout. */
export type TimeoutChanges = {
  readonly idleSecs?: number | null | undefined;
  readonly onTimeout?: OnTimeout | undefined;
  readonly autoResume?: boolean | undefined;
};

export function changeTimeouts(now: SandboxTimeouts, changes: TimeoutChanges): SandboxTimeouts {
  const { idleSecs } = changes;
  return {
    idleSecs: idleSecs === undefined ? now.idleSecs : (idleSecs ?? undefined),
    onTimeout: changes.onTimeout ?? now.onTimeout,
    autoResume: changes.autoResume ?? now.autoResume,
  };
}

/** A state that was saved, and when. */
export type SavedState = { readonly snapshot: StoredSnapshot; readonly savedAt: number };

/**
 * Variables of commands and kernels: those of the snapshot, the sandbox's id and index, the placeholders of its
 * secrets, those of the user.
 */
export function childEnv(
  base: Readonly<Record<string, string>>,
  facts: Pick<SandboxFacts, "id" | "index" | "env">,
  { secrets }: Pick<SandboxNetwork, "secrets">,
): Record<string, string> {
  const own = { FORKD_SANDBOX_ID: facts.id, FORKD_INDEX: String(facts.index) };
  return { ...base, ...own, ...secrets, ...facts.env };
}
