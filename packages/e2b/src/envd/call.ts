/** One request to the agent of a sandbox, and which errors of the guest have another form for clients. */
import { toAppError } from "@forkd/contract";
import type { Runtime } from "@forkd/runtime";
import { errnoOf } from "../connect/codes.ts";
import type { Account } from "./accounts.ts";
import type { E2bContext, SandboxDefaults } from "../types.ts";
import type { GuestUsers } from "./guest-users.ts";
import { resolvePath } from "./paths.ts";

export type EnvdCall = {
  readonly runtime: Runtime;
  readonly users: GuestUsers;
  readonly id: string;
  readonly context: E2bContext;
  /** of the template, for what the client does not say */
  readonly defaults: SandboxDefaults | undefined;
  /** that the client named */
  readonly user: string | undefined;
};

export function accountOf({ users, id, user, defaults, context }: EnvdCall): Promise<Account> {
  return users.account(id, user ?? defaults?.user, context);
}

/** A path of the client as an absolute one. */
export function pathOf({ defaults }: EnvdCall, { home }: Account, path: string): string {
  return resolvePath(path, { home, ...(defaults?.workdir && { base: defaults.workdir }) });
}

/**
 * Runs a file operation as the user, and as root where the user may not do it: E2B's agent works as root and
 * the user only says whose home a path counts from and who owns a new file.
 */
export async function asUserOrRoot<T>(account: Account, work: (user: string) => Promise<T>): Promise<T> {
  try {
    return await work(account.name);
  } catch (error) {
    if (account.uid === 0 || !isDenied(error)) throw error;
    return work("root");
  }
}

function isDenied(error: unknown): boolean {
  const errno = toAppError(error).code === "guest_refused" ? errnoOf(error) : undefined;
  return errno === "EACCES" || errno === "EPERM";
}
