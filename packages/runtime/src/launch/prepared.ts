/** Machines that wait: with nothing loaded yet, or ready to be handed out. */
import { Scope } from "@forkd/base";
import type { AgentClient, Machine, PausedMachine, PreparedMachine } from "@forkd/machine";
import type { StoredSnapshot } from "@forkd/store";
import type { MachineSlot } from "../network/network.ts";
import type { MappedImage } from "../sandbox/record.ts";
import type { GuestIdentity, SandboxHome, SandboxPaths } from "../sandbox/paths.ts";
import type { Rehearsed } from "./after-fork.ts";

/** Its VMM process waits and has loaded nothing. */
export type PreparedLaunch = {
  id: string;
  number: number;
  snapshot: StoredSnapshot;
  paths: SandboxPaths;
  machine: PreparedMachine;
  /** its network, which allows nothing yet */
  slot: MachineSlot;
  /** the flat image or view that the machine maps, if it maps one */
  image: MappedImage | undefined;
  scope: Scope;
};

export type PreparedChild = PreparedLaunch & { home: SandboxHome; homeScope: Scope };

/** It is restored, rehearsed and stopped (ready-child.ts). */
export type ReadyChild = Omit<PreparedChild, "machine"> &
  Rehearsed & {
    machine: Machine;
    identity: GuestIdentity;
    agent: AgentClient;
    paused: PausedMachine;
  };

/** Ends a process that is not needed, and removes its directories. */
export async function discardChild({
  scope,
  homeScope,
}: Pick<PreparedChild, "scope" | "homeScope">): Promise<void> {
  try {
    await scope[Symbol.asyncDispose]();
  } finally {
    await homeScope[Symbol.asyncDispose]();
  }
}
