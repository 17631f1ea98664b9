/** What goes wrong with a registry, as errors of the table. */
import { advice, AppError, errorMessage, type Remedy } from "@forkd/contract";

/** The registry cannot be reached, or says that it cannot answer now. A later try may succeed. */
export function unreachable(what: string, cause: unknown, retryAfterMs?: number): RegistryTrouble {
  return new RegistryTrouble("registry_unreachable", `${what}: ${errorMessage(cause)}`, {
    cause,
    retryAfterMs,
  });
}

/** The registry has no address. Names are mistyped more often than they appear later. */
export function unknownHost(what: string, host: string): RegistryTrouble {
  return new RegistryTrouble("registry_unreachable", `${what}: there is no host "${host}"`, {
    isFinal: true,
    remedy: advice("Check the spelling of the registry, and the name server of this host."),
  });
}

/** The registry breaks its protocol. The same request would get the same answer. */
export function broken(what: string, why: string): RegistryTrouble {
  return new RegistryTrouble("registry_failed", `${what}: ${why}`);
}

/** Bytes from the registry are not those that their digest names. */
export function corrupt(what: string, why: string): RegistryTrouble {
  return new RegistryTrouble("artifact_corrupt", `${what}: ${why}`);
}

export function denied(what: string, registry: string, why: string): RegistryTrouble {
  return new RegistryTrouble("registry_denied", `${what}: ${why}`, { registry });
}

export function missing(what: string, why: string, remedy?: Remedy): RegistryTrouble {
  return new RegistryTrouble("artifact_not_found", `${what}: ${why}`, { remedy });
}

type TroubleCode =
  "registry_unreachable" | "registry_failed" | "registry_denied" | "artifact_not_found" | "artifact_corrupt";
type TroubleOptions = {
  cause?: unknown;
  registry?: string | undefined;
  remedy?: Remedy | undefined;
  /** The same request would fail again. */
  isFinal?: boolean | undefined;
  retryAfterMs?: number | undefined;
  status?: number | undefined;
};

/** An AppError that also says what a retry needs to know. */
export class RegistryTrouble extends AppError {
  readonly retryAfterMs: number | undefined;
  /** HTTP status of the registry's answer */
  readonly status: number | undefined;
  readonly #isFinal: boolean;

  constructor(code: TroubleCode, message: string, options: TroubleOptions = {}) {
    const { cause, registry, remedy, isFinal = false, retryAfterMs, status } = options;
    super(code, message, {
      ...(cause !== undefined && { cause }),
      ...(remedy && { remedy }),
      ...(registry !== undefined && {
        details: { registry },
        remedy: { action: "log_in", registry },
      }),
    });
    this.retryAfterMs = retryAfterMs;
    this.status = status;
    this.#isFinal = isFinal;
  }

  get isTransient(): boolean {
    return this.code === "registry_unreachable" && !this.#isFinal;
  }
}

/** Text of a registry for a message: one line, printable, short. */
export function quoted(text: string, limit = 200): string {
  const line = text.replaceAll(/[\p{C}\s]+/gu, " ").trim();
  return line.length > limit ? `${line.slice(0, limit)}…` : line;
}
