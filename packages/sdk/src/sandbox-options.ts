/** Timeouts, limits and network of sandboxes, as options and on the wire. */
import type { NetworkMode, RequestOf } from "@forkd/contract";

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

/** Network and secrets of a sandbox. */
export type NetworkOptions = {
  /** Where the sandbox may connect to; default: as its snapshot (for a branch: its source), then the settings. */
  network?:
    | {
        /** none, filtered or open; default: as the snapshot or the source, then the settings. */
        mode?: NetworkMode | undefined;
        /** Rules such as "allow api.example.com:443", tried before all others; default: none. */
        rules?: readonly string[] | undefined;
      }
    | undefined;
  /** Names of secrets that it may use; default: none, for a branch those of its source. */
  secrets?: readonly string[] | undefined;
};

/** The options as fields of a request. */
export function lifeFields(
  options: LifeOptions,
): Pick<RequestOf<"fork">, "idle_timeout_secs" | "on_timeout" | "auto_resume" | "limits"> {
  const { idleTimeoutSecs, onTimeout, autoResume, limits } = options;
  return { idle_timeout_secs: idleTimeoutSecs, on_timeout: onTimeout, auto_resume: autoResume, limits };
}

/** The options as fields of a request. */
export function networkFields(options: NetworkOptions): Pick<RequestOf<"fork">, "network" | "secrets"> {
  const { network, secrets } = options;
  return {
    network: network && { mode: network.mode, rules: network.rules && [...network.rules] },
    secrets: secrets && [...secrets],
  };
}
