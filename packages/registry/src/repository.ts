/** One repository: manifests, tags, blobs and referrers. */
import { advice } from "@forkd/contract";
import { readBlob, type BlobRange } from "./blobs/read.ts";
import { mountBlob, uploadBlob, type UploadSource } from "./blobs/upload.ts";
import { digestOf, hashFor, isDigest, matches } from "./digest.ts";
import { broken, corrupt, RegistryTrouble } from "./errors.ts";
import type { RegistryHost } from "./host.ts";
import { discard, readBounded } from "./http/body.ts";
import { withRetries, type RetryPolicy } from "./http/retry.ts";
import type { Incoming } from "./http/transport.ts";
import { listPages } from "./list.ts";
import { maxManifestBytes, mediaTypes, type Descriptor } from "./manifest.ts";
import type { Place, TransferOptions } from "./place.ts";
import { isTagName } from "./reference.ts";
import { addReferrer, listReferrers } from "./referrers.ts";

export type StoredManifest = { readonly digest: string; readonly mediaType: string; readonly bytes: Buffer };
type Facts = {
  readonly name: string;
  readonly origin: RegistryHost;
  readonly mirrors: readonly RegistryHost[];
  readonly retries: RetryPolicy;
  /** what the caller is going to do: one token for all of it */
  readonly actions: "pull" | "pull,push";
};

const acceptManifests = [
  mediaTypes.manifest,
  mediaTypes.index,
  mediaTypes.dockerManifest,
  mediaTypes.dockerList,
].join(", ");
/** A registry may check and move a whole blob before it answers. */
const commitSilenceMs = 300_000;

export class Repository implements Place {
  readonly name: string;
  readonly #facts: Facts;
  /** mirrors that did not answer, which are not asked again */
  readonly #silent = new Set<RegistryHost>();

  constructor(facts: Facts) {
    this.name = facts.name;
    this.#facts = facts;
  }

  get registry(): string {
    return this.#facts.origin.name;
  }

  /** The scopes of a token for this repository. */
  scopes(actions: "pull" | "pull,push" = this.#facts.actions): string[] {
    return [`repository:${this.name}:${actions}`];
  }

  /** Digest and size of a manifest, without its bytes; undefined if there is none. Asks the registry itself. */
  async head(tagOrDigest: string, signal?: AbortSignal): Promise<Descriptor | undefined> {
    const what = this.#what("Cannot look for", tagOrDigest);
    return await withRetries(this.#facts.retries, signal, async () => {
      const incoming = await this.#facts.origin.request({
        method: "HEAD",
        target: `${this.name}/manifests/${tagOrDigest}`,
        headers: { accept: acceptManifests },
        scopes: this.scopes(),
        accept: [200, 404],
        what,
        signal,
      });
      discard(incoming);
      if (incoming.status === 404) return undefined;
      const digest = String(incoming.headers["docker-content-digest"] ?? "");
      const size = Number(incoming.headers["content-length"]);
      // Some registries name no digest here; the manifest itself has to be read then.
      if (!isDigest(digest) || !Number.isSafeInteger(size)) {
        const manifest = await this.manifest(tagOrDigest, signal);
        return { mediaType: manifest.mediaType, digest: manifest.digest, size: manifest.bytes.length };
      }
      return { mediaType: mediaTypeOf(incoming), digest, size };
    });
  }

  /** The bytes of a manifest, whose digest is checked if it was asked for by digest or the registry names one. */
  async manifest(tagOrDigest: string, signal?: AbortSignal): Promise<StoredManifest> {
    if (!isDigest(tagOrDigest) && !isTagName(tagOrDigest))
      throw broken(`Cannot read "${tagOrDigest}" of ${this.name}`, "it is neither a tag nor a digest");
    return await this.#fromAny((host) => this.#readManifest(host, tagOrDigest, signal), signal);
  }

  async #readManifest(
    host: RegistryHost,
    tagOrDigest: string,
    signal: AbortSignal | undefined,
  ): Promise<StoredManifest> {
    const what = this.#what("Cannot read", tagOrDigest);
    const incoming = await host.request({
      method: "GET",
      target: `${this.name}/manifests/${tagOrDigest}`,
      headers: { accept: acceptManifests },
      scopes: this.scopes(),
      ifMissing: advice("Check the repository and the tag. A search lists what the registry has."),
      what,
      signal,
    });
    const bytes = await readBounded(incoming, maxManifestBytes, what);
    const named = String(incoming.headers["docker-content-digest"] ?? "");
    for (const digest of [tagOrDigest, named].filter(isDigest)) {
      if (!matches(digest, hashFor(digest).update(bytes)))
        throw corrupt(
          what,
          `${host.name} sends a manifest whose digest is ${digestOf(bytes)}, not ${digest}`,
        );
    }
    const digest = isDigest(tagOrDigest) ? tagOrDigest : digestOf(bytes);
    return { digest, mediaType: mediaTypeOf(incoming), bytes };
  }

  /** Stores a manifest under its digest, and under a tag if there is one. */
  async putManifest(
    bytes: Uint8Array,
    mediaType: string,
    options: { tag?: string | undefined; signal?: AbortSignal | undefined } = {},
  ): Promise<{ digest: string; hasSubject: boolean }> {
    const { tag, signal } = options;
    const digest = digestOf(bytes);
    const what = this.#what("Cannot write", tag ?? digest);
    const incoming = await withRetries(this.#facts.retries, signal, () =>
      this.#facts.origin.request({
        method: "PUT",
        target: `${this.name}/manifests/${tag ?? digest}`,
        headers: { "content-type": mediaType },
        body: () => bytes,
        scopes: this.scopes("pull,push"),
        silenceMs: commitSilenceMs,
        what,
        signal,
      }),
    );
    discard(incoming);
    const stored = incoming.headers["docker-content-digest"];
    if (stored !== undefined && stored !== digest)
      throw corrupt(what, `${this.registry} has stored ${String(stored)}, not ${digest}`);
    return { digest, hasSubject: incoming.headers["oci-subject"] !== undefined };
  }

  /** True if the registry has the blob with this size. */
  async hasBlob({ digest, size }: { digest: string; size: number }, signal?: AbortSignal): Promise<boolean> {
    const incoming = await withRetries(this.#facts.retries, signal, () =>
      this.#facts.origin.request({
        method: "HEAD",
        target: `${this.name}/blobs/${digest}`,
        scopes: this.scopes(),
        accept: [200, 404],
        what: this.#what("Cannot look for", digest),
        signal,
      }),
    );
    discard(incoming);
    if (incoming.status === 404) return false;
    const length = incoming.headers["content-length"];
    return length === undefined || Number(length) === size;
  }

  /**
   * The bytes of a blob, or of a part of it. Continues after a broken connection, and at the next mirror. The
   * digest of a whole blob is checked at its end; the caller checks a part.
   */
  readBlob(
    blob: { digest: string; size: number },
    options: BlobRange & TransferOptions = {},
  ): AsyncGenerator<Uint8Array> {
    const { origin, retries } = this.#facts;
    const onSilent = (host: RegistryHost) => void this.#silent.add(host);
    return readBlob({
      repository: this,
      hosts: [...this.#mirrors(), origin],
      retries,
      blob,
      onSilent,
      ...options,
    });
  }

  /** Sends a blob that the registry does not have. */
  async uploadBlob(blob: UploadSource, options: TransferOptions = {}): Promise<void> {
    const { origin, retries } = this.#facts;
    await uploadBlob({ repository: this, host: origin, retries, blob, ...options });
  }

  /** Takes a blob from another repository of this registry. False if the registry does not do that. */
  async mountBlob(digest: string, from: string, signal?: AbortSignal): Promise<boolean> {
    const { origin, retries } = this.#facts;
    return await mountBlob({ repository: this, host: origin, retries, digest, from, signal });
  }

  /** The tags; those of a registry that sends endless pages are an error. */
  async tags(signal?: AbortSignal): Promise<string[]> {
    const { origin, retries } = this.#facts;
    const list = { host: origin, retries, target: `${this.name}/tags/list?n=1000`, scopes: this.scopes() };
    const what = `Cannot list the tags of ${this.registry}/${this.name}`;
    return (await listPages({ ...list, field: "tags", what, signal })).filter(isTagName);
  }

  /** The manifests whose subject is this one, such as signatures. */
  async referrers(digest: string, artifactType?: string, signal?: AbortSignal): Promise<Descriptor[]> {
    const { origin, retries } = this.#facts;
    return await listReferrers(this, { host: origin, retries, digest, artifactType, signal });
  }

  /** Stores a manifest that has a subject, so that referrers() of the subject lists it. */
  async putReferrer(bytes: Uint8Array, mediaType: string, signal?: AbortSignal): Promise<string> {
    return await addReferrer(this, bytes, mediaType, signal);
  }

  /** Asks the mirrors first. The error is that of the registry itself. */
  async #fromAny<T>(work: (host: RegistryHost) => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    for (const mirror of this.#mirrors()) {
      try {
        return await work(mirror);
      } catch (error) {
        if (!(error instanceof RegistryTrouble)) throw error;
        if (error.code === "registry_unreachable") this.#silent.add(mirror);
      }
    }
    return await withRetries(this.#facts.retries, signal, () => work(this.#facts.origin));
  }

  #mirrors(): RegistryHost[] {
    return this.#facts.mirrors.filter((mirror) => !this.#silent.has(mirror));
  }

  #what(verb: string, name: string): string {
    return `${verb} ${this.registry}/${this.name}${isDigest(name) ? "@" : ":"}${name}`;
  }
}

function mediaTypeOf({ headers }: Incoming): string {
  return (headers["content-type"] ?? "").split(";")[0]?.trim() ?? "";
}
