/** Times and limits of sandboxes, as options and on the wire. */
import type { RequestOf } from "@forkd/contract";

/** How long sandboxes may be left alone, and what each may take of the host. */
export type LifeOptions = {
  /** seconds without a call into the sandbox */
  idleTimeoutSecs?: number | undefined;
  /** what follows when a time is over; default: kill, of a workspace: pause */
  onTimeout?: "kill" | "pause" | undefined;
  /** a call into it while it is paused resumes it first */
  autoResume?: boolean | undefined;
  limits?: RequestOf<"fork">["limits"];
};

/** Their form on the wire. */
export function lifeFields(
  options: LifeOptions,
): Pick<RequestOf<"fork">, "idle_timeout_secs" | "on_timeout" | "auto_resume" | "limits"> {
  const { idleTimeoutSecs, onTimeout, autoResume, limits } = options;
  return { idle_timeout_secs: idleTimeoutSecs, on_timeout: onTimeout, auto_resume: autoResume, limits };
}
