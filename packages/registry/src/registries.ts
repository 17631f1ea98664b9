/** The registries that one operation talks to, with their credentials and mirrors. */
import type { FindCredentials } from "./credentials/credentials.ts";
import { RegistryHost } from "./host.ts";
import { defaultRetries, type RetryPolicy } from "./http/retry.ts";
import { Transport } from "./http/transport.ts";
import { isRepositoryName, parseRegistry } from "./reference.ts";
import { Repository } from "./repository.ts";
import { AppError } from "@forkd/contract";

export type RegistriesOptions = {
  /** default: anonymous */
  readonly credentials?: FindCredentials | undefined;
  /** Uses HTTP without TLS. Registries on this host may have either. */
  readonly plainHttp?: boolean | undefined;
  /** file with certificate authorities to trust beside the usual ones */
  readonly caFile?: string | undefined;
  /** registry → URLs or hosts of mirrors, asked first for reads */
  readonly mirrors?: Readonly<Record<string, readonly string[]>> | undefined;
  readonly retries?: RetryPolicy | undefined;
  /** names the proxies of this host; default: that of this process */
  readonly environment?: NodeJS.ProcessEnv | undefined;
  /** how long a registry may be silent */
  readonly silenceMs?: number | undefined;
};

const defaultSilenceMs = 60_000;

/** Disposing it closes its connections. */
export class Registries implements Disposable {
  readonly #options: RegistriesOptions;
  readonly #transport: Transport;
  readonly #hosts = new Map<string, RegistryHost>();
  readonly retries: RetryPolicy;

  constructor(options: RegistriesOptions = {}) {
    this.#options = options;
    this.#transport = new Transport(options.caFile, options.environment);
    this.retries = options.retries ?? defaultRetries;
  }

  host(registry: string): RegistryHost {
    return this.#hostOf(parseRegistry(registry));
  }

  /**
   * `actions`: what the caller is going to do there. A caller that writes does not read from mirrors: it would
   * replace what the registry has by a copy that may be older.
   */
  repository(
    { registry, repository }: { registry: string; repository: string },
    actions: "pull" | "pull,push" = "pull",
  ): Repository {
    if (!isRepositoryName(repository))
      throw new AppError("invalid_request", `"${repository}" is not the name of a repository`);
    const origin = this.#hostOf(registry, repository);
    const names = actions === "pull" ? this.#options.mirrors?.[registry] : [];
    const mirrors = (names ?? []).map((mirror) => this.#hostOf(mirror));
    return new Repository({ name: repository, origin, mirrors, retries: this.retries, actions });
  }

  /** The server of a file. It gets no credentials. */
  site(url: URL): RegistryHost {
    return new RegistryHost({
      name: url.origin,
      transport: this.#transport,
      credentials: undefined,
      plainHttp: this.#options.plainHttp ?? false,
      silenceMs: this.#options.silenceMs ?? defaultSilenceMs,
    });
  }

  /** Credentials may be for one repository, so a host with a repository has its own tokens. */
  #hostOf(name: string, repository = ""): RegistryHost {
    const key = `${name}/${repository}`;
    const known = this.#hosts.get(key);
    if (known) return known;
    const { credentials, plainHttp = false, silenceMs = defaultSilenceMs } = this.#options;
    const host = new RegistryHost({
      name,
      transport: this.#transport,
      credentials:
        credentials && (() => credentials(name.replace(/^https?:\/\//, ""), repository || undefined)),
      plainHttp,
      silenceMs,
    });
    this.#hosts.set(key, host);
    return host;
  }

  [Symbol.dispose](): void {
    this.#transport[Symbol.dispose]();
  }
}
