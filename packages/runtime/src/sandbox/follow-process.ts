/**
 * Several calls read the output of one process: the first attaches to it, the others join, and the last one to
 * leave detaches. Attaching and detaching wait for each other, because a process has one attachment.
 */
import { GuestProgress, type AgentProcess } from "@forkd/machine";
import { SharedOutput, type OutputFollower } from "../guest/shared-output.ts";
import type { FollowedProcess, SandboxMachine } from "./sandbox-machine.ts";
import type { Sandbox } from "./sandbox.ts";

/** From which byte of stdout and stderr a reader begins. */
type Offsets = readonly [number, number];

/** Makes the output of a process that this call has started readable for others. */
export function shareOutput(sandbox: Sandbox, process: AgentProcess): FollowedProcess {
  const { current } = sandbox;
  // A command may be silent. Only a guest that does not answer ends the stream.
  const progress = new GuestProgress(sandbox.agent, "follow the command", { mayIdle: true });
  const output = new SharedOutput(`command ${process.id}`, {
    next: () => progress.next(process.output.next()).catch(lose),
    exit: async () => {
      const exit = await progress.next(process.exit).catch(lose);
      current.removeFollowed(followed);
      return exit;
    },
  });
  // A guest that answers again still has the process, and the next attach finds it.
  const lose = (error: unknown): never => {
    current.removeFollowed(followed);
    process.detach().catch(() => undefined);
    throw error;
  };
  const followed = { process, output };
  current.addFollowed(followed);
  return followed;
}

type FollowedOutput = {
  readonly process: AgentProcess;
  readonly output: OutputFollower;
  /** Stops reading. The last reader detaches from the process. */
  leave(): Promise<void>;
};

/** Reads the output of a process, together with the calls that read it already. */
export async function followProcess(
  sandbox: Sandbox,
  attach: () => Promise<AgentProcess>,
  { id, offsets }: { id: number; offsets: Offsets },
): Promise<FollowedOutput> {
  const { current } = sandbox;
  return current.attachBriefly(async () => {
    const followed = current.followed(id) ?? shareOutput(sandbox, await attach());
    const output = followed.output.follow(offsets);
    return { process: followed.process, output, leave: () => leave(current, followed, output) };
  });
}

/** Stops reading, and detaches if no other call reads. */
export async function leave(
  current: SandboxMachine,
  followed: FollowedProcess,
  output: OutputFollower,
): Promise<void> {
  output.close();
  await current.attachBriefly(async () => {
    if (followed.output.followers > 0) return;
    current.removeFollowed(followed);
    await followed.process.detach();
  });
}
