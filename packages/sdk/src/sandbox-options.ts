/** Timeouts and limits of sandboxes, as options and on the wire. */
import type { RequestOf } from "@forkd/contract";

/** Timeouts and limits of a sandbox. */
export type LifeOptions = {
  /** Kills or pauses the sandbox after this many seconds without a call into it; default: no limit. */
  idleTimeoutSecs?: number | undefined;
  /** What a timeout does; default: "kill", for a workspace "pause". */
  onTimeout?: "kill" | "pause" | undefined;
  /** Resumes the sandbox when a call needs it while it is paused; default: false. */
  autoResume?: boolean | undefined;
  /** What the sandbox may use of the host; default: the daemon's settings. */
  limits?: RequestOf<"fork">["limits"];
};

/** The options as fields of a request. */
export function lifeFields(
  options: LifeOptions,
): Pick<RequestOf<"fork">, "idle_timeout_secs" | "on_timeout" | "auto_resume" | "limits"> {
  const { idleTimeoutSecs, onTimeout, autoResume, limits } = options;
  return { idle_timeout_secs: idleTimeoutSecs, on_timeout: onTimeout, auto_resume: autoResume, limits };
}
