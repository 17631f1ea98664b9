/** A machine whose VMM process waits and has loaded nothing yet. */
import { Scope } from "@forkd/base";
import type { PreparedMachine } from "@forkd/machine";
import type { StoredSnapshot } from "@forkd/store";
import type { MachineSlot } from "../network/network.ts";
import type { SandboxHome, SandboxPaths } from "../sandbox/paths.ts";

export type PreparedLaunch = {
  id: string;
  number: number;
  snapshot: StoredSnapshot;
  paths: SandboxPaths;
  machine: PreparedMachine;
  /** its network, which allows nothing yet */
  slot: MachineSlot;
  /** stamp of the flat image, if the machine maps one */
  imageStamp: string | undefined;
  scope: Scope;
};

export type PreparedChild = PreparedLaunch & { home: SandboxHome; homeScope: Scope };

/** Ends a process that is not needed, and removes its directories. */
export async function discardChild({ scope, homeScope }: PreparedChild): Promise<void> {
  try {
    await scope[Symbol.asyncDispose]();
  } finally {
    await homeScope[Symbol.asyncDispose]();
  }
}
