/**
 * Names resolved on the host. An answer is pinned until its time ends, so that the address that was checked is the
 * address that is connected to, and a name cannot lead to another address between the two.
 */
import dns from "node:dns";
import { readFile } from "node:fs/promises";
import { CachedValue, isErrno, LruMap, SingleFlight, withDeadline } from "@forkd/base";
import { AppError, errorMessage } from "@forkd/contract";
import { canonicalAddress } from "../policy/address.ts";
import { LookupSlots } from "./lookup-slots.ts";

const lookupMs = 5000;
/** `inAll` leaves some of the proxy's 16 threads to files. */
const lookups = { perMachine: 4, inAll: 12 };
const maxAddresses = 32;
const maxEntries = 8192;
/** A shorter time would make pinning useless, a longer one would keep addresses that moved. */
const ttl = { leastMs: 30_000, usualMs: 60_000, mostMs: 300_000, negativeMs: 5000 };

type Answer = { readonly addresses: readonly string[]; readonly ttlMs?: number | undefined };
type Pinned = { readonly untilMs: number; readonly addresses: readonly string[]; readonly error?: AppError };

type ResolverOptions = {
  /** `IP` or `IP:PORT` of a DNS server; default: the host's own configuration */
  readonly server?: string | undefined;
  /** asks the host in place of getaddrinfo() */
  readonly askHost?: ((name: string) => Promise<Answer>) | undefined;
  readonly deadlineMs?: number | undefined;
  readonly nowMs?: (() => number) | undefined;
};

export class HostResolver {
  readonly #pinned = new LruMap<string, Pinned>(maxEntries);
  readonly #flight = new SingleFlight<Pinned>();
  readonly #ask: (name: string) => Promise<Answer>;
  /** undefined if questions do not occupy threads */
  readonly #slots: LookupSlots | undefined;
  readonly #deadlineMs: number;
  readonly #nowMs: () => number;

  constructor(options: ResolverOptions = {}) {
    const { server, askHost = lookUp, deadlineMs = lookupMs, nowMs = () => performance.now() } = options;
    this.#ask = server === undefined ? askHost : askServer(server);
    this.#slots = server === undefined ? new LookupSlots(lookups) : undefined;
    this.#deadlineMs = deadlineMs;
    this.#nowMs = nowMs;
  }

  /**
   * At least one address. Rejects with AppError: not_found, engine_failed if the resolver does not answer, or
   * capacity_exhausted if too many look-ups of the machine are in progress.
   */
  async resolve(name: string, machine: string): Promise<readonly string[]> {
    const pinned = this.#fresh(name) ?? (await this.#lookUp(name, machine));
    if (pinned.error) throw pinned.error;
    return pinned.addresses;
  }

  #fresh(name: string): Pinned | undefined {
    const pinned = this.#pinned.get(name);
    return pinned && pinned.untilMs > this.#nowMs() ? pinned : undefined;
  }

  /** The slot is taken before the shared look-up, so that no machine waits for the slots of another one. */
  async #lookUp(name: string, machine: string): Promise<Pinned> {
    const release = await this.#slots?.take(machine, this.#deadlineMs);
    let isStarted = false;
    const work = async (): Promise<Pinned> => {
      isStarted = true;
      return this.#renew(name, release);
    };
    const result = this.#fresh(name) ?? this.#flight.run(name, work);
    if (!isStarted) release?.();
    return result;
  }

  async #renew(name: string, release: (() => void) | undefined): Promise<Pinned> {
    const asked = this.#ask(name);
    asked.then(
      () => release?.(),
      () => release?.(),
    );
    const pinned = await this.#answer(name, asked);
    this.#pinned.set(name, pinned);
    return pinned;
  }

  async #answer(name: string, asked: Promise<Answer>): Promise<Pinned> {
    const late = () =>
      new AppError("engine_failed", `Cannot resolve "${name}": no answer within ${this.#deadlineMs} ms`);
    try {
      const { addresses, ttlMs = ttl.usualMs } = await withDeadline(asked, this.#deadlineMs, late);
      const usable = addresses.flatMap((text) => canonicalAddress(text) ?? []);
      if (usable.length === 0) throw noSuchName(name);
      const time = Math.min(Math.max(ttlMs, ttl.leastMs), ttl.mostMs);
      return { untilMs: this.#nowMs() + time, addresses: [...new Set(usable)].slice(0, maxAddresses) };
    } catch (error) {
      const failure = failureOf(name, error);
      return { untilMs: this.#nowMs() + ttl.negativeMs, addresses: [], error: failure };
    }
  }
}

function failureOf(name: string, error: unknown): AppError {
  if (error instanceof AppError) return error;
  if (isErrno(error, "ENOTFOUND", "ENODATA", "EBADNAME")) return noSuchName(name);
  return new AppError("engine_failed", `Cannot resolve "${name}": ${errorMessage(error)}`, { cause: error });
}

function noSuchName(name: string): AppError {
  return new AppError("not_found", `There is no host "${name}"`);
}

const hostsFile = new CachedValue(async () => {
  const text = await readFile("/etc/hosts", "latin1").catch(() => "");
  const lines = text.split("\n").map((line) => line.replace(/#.*/, "").trim().toLowerCase());
  return new Set(lines.flatMap((line) => line.split(/\s+/).slice(1)));
});
const hostsFileMs = 5000;

/**
 * As programs of the host do, except for search domains: a trailing dot keeps the host from appending its own domain
 * to a name that does not exist. The hosts file is not found with a dot.
 */
async function lookUp(name: string): Promise<Answer> {
  const isLocal = !name.includes(".") || (await hostsFile.fresh(hostsFileMs)).has(name);
  const found = await dns.promises.lookup(isLocal ? name : `${name}.`, { all: true, verbatim: true });
  return { addresses: found.map(({ address }) => address) };
}

function askServer(server: string): (name: string) => Promise<Answer> {
  const resolver = new dns.promises.Resolver({ timeout: 2000, tries: 2 });
  resolver.setServers([server]);
  return async (name) => {
    const [four, six] = await Promise.allSettled([
      resolver.resolve4(name, { ttl: true }),
      resolver.resolve6(name, { ttl: true }),
    ]);
    const records = [four, six].flatMap((each) => (each.status === "fulfilled" ? each.value : []));
    if (records.length === 0 && four.status === "rejected") throw four.reason;
    const seconds = Math.min(...records.map((record) => record.ttl));
    return { addresses: records.map(({ address }) => address), ttlMs: seconds * 1000 };
  };
}
