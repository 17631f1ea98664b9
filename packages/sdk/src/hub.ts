/** Registries of snapshots. */
import { AppError } from "@forkd/contract/wire";
import type { CallOptions, Client } from "./client.ts";
import { fromWire } from "./convert/answer.ts";
import { requestOf } from "./convert/request.ts";
import type { PullResult, PushResult, SearchResult, SignResult, TransferProgress } from "./types.ts";

/** Credentials for a registry. */
export type RegistryAuth =
  | {
      /** Name of the user. */
      username: string;
      /** Password or access token. */
      password: string;
    }
  | {
      /** A refresh token, as Docker keeps it. */
      identityToken: string;
    }
  | {
      /** A token that is sent as it is. */
      registryToken: string;
    };

/** How to reach a registry. */
export type HubOptions = CallOptions & {
  /** Credentials for the registry; default: none. */
  auth?: RegistryAuth | undefined;
  /** Connects without TLS; default: only to a registry on the daemon's host that has none. */
  plainHttp?: boolean | undefined;
};

/** How to send a snapshot. */
export type PushOptions = HubOptions & {
  /** Level of compression, 1 to 19; default: 7. */
  level?: number | undefined;
  /** Receives the progress; default: it is not reported. */
  onProgress?: ((progress: TransferProgress) => void) | undefined;
};

/** How to fetch a snapshot. */
export type PullOptions = HubOptions & {
  /** Tag of the snapshot here; default: the last part of the repository, or the archive's own tag. */
  tag?: string | undefined;
  /** Replaces a snapshot that has this tag; default: false. */
  force?: boolean | undefined;
  /** Builds the snapshot from its recipe if this host cannot restore it; default: false. */
  rebuild?: boolean | undefined;
  /** Looks for no signature, whatever the trust list requires; default: false. */
  insecureSkipSignature?: boolean | undefined;
  /** Receives the progress; default: it is not reported. */
  onProgress?: ((progress: TransferProgress) => void) | undefined;
};

/** A signature that the caller has made. */
export type SignOptions = HubOptions & {
  /** Base64 of the signature. */
  signature: string;
  /** Public key of the signature, as PEM. */
  publicKey: string;
};

/** What to look for in a registry. */
export type SearchOptions = HubOptions & {
  /** Only names that contain it; default: all. */
  text?: string | undefined;
};

/** Sends snapshots to registries and fetches them. */
export class Hub {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** Sends a snapshot with its chain to `HOST/REPOSITORY:TAG`, or as an archive to a URL. */
  async push(tag: string, reference: string, options: PushOptions = {}): Promise<PushResult> {
    const request = requestOf("push", { tag, reference }, options, ["onProgress"]);
    for await (const line of await this.#client.lines("push", request, options)) {
      const event = fromWire(line);
      if (event.type === "progress") options.onProgress?.(event);
      else if (event.type === "pushed") return event.push;
    }
    throw ended(`snapshot "${tag}" was sent`);
  }

  /** Fetches a snapshot from `HOST/REPOSITORY:TAG`, or from the URL of an archive. A later call continues. */
  async pull(reference: string, options: PullOptions = {}): Promise<PullResult> {
    const request = requestOf("pull", { reference }, options, ["onProgress"]);
    for await (const line of await this.#client.lines("pull", request, options)) {
      const event = fromWire(line);
      if (event.type === "progress") options.onProgress?.(event);
      else if (event.type === "pulled") return event.pull;
    }
    throw ended(`"${reference}" was fetched`);
  }

  /** Attaches a signature to the manifest with this digest in `HOST/REPOSITORY`. */
  sign(reference: string, digest: string, options: SignOptions): Promise<SignResult> {
    return this.#client.invoke("signPushed", { reference, digest }, options);
  }

  /** Lists the snapshots of `REGISTRY[/PREFIX]`; default: those of the daemon's setting hub_registry. */
  search(registry?: string, options: SearchOptions = {}): Promise<SearchResult> {
    return this.#client.invoke("searchHub", registry === undefined ? {} : { registry }, options);
  }
}

function ended(what: string): AppError {
  return new AppError("daemon_unreachable", `The daemon's answer ended before ${what}`);
}
