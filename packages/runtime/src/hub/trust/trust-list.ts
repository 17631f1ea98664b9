/** Whose signatures are asked for, by repository: `trust.json` of the data directory. */
import { Mutex, readJson, UnsafeFile, writeFileAtomic } from "@forkd/base";
import { AppError, maxPublicKeyChars, trustPatternSchema, trustPolicySchema } from "@forkd/contract";
import type { ParsedOf, TrustEntry, TrustPolicy } from "@forkd/contract";
import { z } from "zod";
import { readPublicKey, type PublicKey } from "./public-key.ts";
import { fits, usualPattern } from "./trust-pattern.ts";

const maxEntries = 1000;
const maxKeys = 64;

const fileSchema = z.strictObject({
  version: z.literal(1),
  entries: z
    .array(
      z.strictObject({
        repository: trustPatternSchema,
        policy: trustPolicySchema.optional(),
        keys: z
          .array(
            z.strictObject({ public_key: z.string().max(maxPublicKeyChars), pinned_at_unix: z.number() }),
          )
          .max(maxKeys),
      }),
    )
    .max(maxEntries),
});

type PinnedKey = PublicKey & { readonly pinnedAtUnix: number };
type Entry = {
  readonly repository: string;
  /** the one that was set */
  readonly policy: TrustPolicy | undefined;
  readonly keys: readonly PinnedKey[];
};

/** What applies to a repository. */
export type Trust = { readonly policy: TrustPolicy; readonly keys: readonly PublicKey[] };

export class TrustList {
  readonly #path: string | undefined;
  #entries: readonly Entry[];
  readonly #writes = new Mutex();

  private constructor(path: string | undefined, entries: readonly Entry[]) {
    this.#path = path;
    this.#entries = entries;
  }

  /** Asks for no signature and keeps nothing. */
  static none(): TrustList {
    return new TrustList(undefined, []);
  }

  /** Throws `host_not_ready` if the file cannot be used: a daemon without it would trust everybody. */
  static async open(path: string): Promise<TrustList> {
    try {
      const content = await readJson(path);
      if (content === undefined) return new TrustList(path, []);
      const parsed = fileSchema.safeParse(content);
      if (!parsed.success) throw new AppError("host_not_ready", z.prettifyError(parsed.error));
      const entries = parsed.data.entries.map(({ repository, policy, keys }): Entry => {
        const read = keys.map((key) => ({
          ...readPublicKey(key.public_key),
          pinnedAtUnix: key.pinned_at_unix,
        }));
        return { repository: usualPattern(repository), policy, keys: read };
      });
      return new TrustList(path, merged(entries).toSorted(bySpecificity));
    } catch (error) {
      if (!(error instanceof AppError || error instanceof SyntaxError || error instanceof UnsafeFile))
        throw error;
      throw new AppError("host_not_ready", `Cannot use ${path}: ${error.message}`, {
        details: { file: path },
        cause: error,
      });
    }
  }

  /** The most specific first, so that the first one that fits applies. */
  list(): TrustEntry[] {
    return this.#entries.map(describe);
  }

  /** The most specific entry that fits decides alone. */
  for(repository: string): Trust {
    const entry = this.#entries.find((each) => fits(each.repository, repository));
    return entry ? { policy: policyOf(entry), keys: entry.keys } : { policy: "warn", keys: [] };
  }

  /** Throws `invalid_signing_key`. */
  async set({ repository: given, public_key, policy }: ParsedOf<"setTrust">): Promise<TrustEntry> {
    const repository = usualPattern(given);
    const key = public_key === undefined ? undefined : readPublicKey(public_key);
    return await this.#writes.run(async () => {
      const before = this.#entries.find((each) => each.repository === repository);
      const kept = before?.keys ?? [];
      const isNew = key !== undefined && !kept.some(({ fingerprint }) => fingerprint === key.fingerprint);
      const pinnedAtUnix = Math.floor(Date.now() / 1000);
      const entry: Entry = {
        repository,
        policy: policy === undefined ? before?.policy : (policy ?? undefined),
        keys: isNew ? [...kept, { ...key, pinnedAtUnix }] : kept,
      };
      const others = this.#entries.filter((each) => each !== before);
      if (others.length >= maxEntries || entry.keys.length > maxKeys)
        throw new AppError(
          "invalid_request",
          `Cannot pin the key: there are at most ${maxEntries} repositories with ${maxKeys} keys each`,
        );
      await this.#write([...others, entry]);
      return describe(entry);
    });
  }

  /** Without a fingerprint the whole entry. An entry without keys and policy goes too. Throws `not_found`. */
  async remove({ repository: given, fingerprint }: ParsedOf<"removeTrust">): Promise<void> {
    const repository = usualPattern(given);
    await this.#writes.run(async () => {
      const entry = this.#entries.find((each) => each.repository === repository);
      const keys = (entry?.keys ?? []).filter((each) => fingerprint && each.fingerprint !== fingerprint);
      if (!entry || (fingerprint !== undefined && keys.length === entry.keys.length)) {
        const what = entry ? `The key ${fingerprint} is not pinned` : "No key and no policy is set";
        throw new AppError("not_found", `${what} for "${repository}"`, {
          details: { repository, fingerprint },
        });
      }
      const others = this.#entries.filter((each) => each !== entry);
      const isKept = fingerprint !== undefined && (keys.length > 0 || entry.policy !== undefined);
      await this.#write(isKept ? [...others, { ...entry, keys }] : others);
    });
  }

  async #write(entries: readonly Entry[]): Promise<void> {
    const sorted = entries.toSorted(bySpecificity);
    const content = {
      version: 1,
      entries: sorted.map(({ repository, policy, keys }) => ({
        repository,
        ...(policy && { policy }),
        keys: keys.map(({ pem, pinnedAtUnix }) => ({ public_key: pem, pinned_at_unix: pinnedAtUnix })),
      })),
    };
    if (this.#path !== undefined)
      await writeFileAtomic(this.#path, `${JSON.stringify(content, undefined, 2)}\n`);
    this.#entries = sorted;
  }
}

/** One entry per repository, also if a file names it in two spellings. */
function merged(entries: readonly Entry[]): Entry[] {
  const found = new Map<string, Entry>();
  for (const entry of entries) {
    const { policy, keys = [] } = found.get(entry.repository) ?? {};
    found.set(entry.repository, { ...entry, policy: policy ?? entry.policy, keys: [...keys, ...entry.keys] });
  }
  return [...found.values()];
}

function policyOf({ policy, keys }: Entry): TrustPolicy {
  return policy ?? (keys.length > 0 ? "require" : "warn");
}

function describe(entry: Entry): TrustEntry {
  return {
    repository: entry.repository,
    policy: policyOf(entry),
    is_set: entry.policy !== undefined,
    keys: entry.keys.map(({ fingerprint, algorithm, pem, pinnedAtUnix }) => ({
      fingerprint,
      algorithm,
      public_key: pem,
      pinned_at_unix: pinnedAtUnix,
    })),
  };
}

/** A whole name before patterns, and the longest pattern first. */
function bySpecificity({ repository: a }: Entry, { repository: b }: Entry): number {
  const isPattern = Number(a.endsWith("*")) - Number(b.endsWith("*"));
  return isPattern || b.length - a.length || (a < b ? -1 : 1);
}
