/** The users of guests: who a call runs as. */
import { LruMap, SingleFlight } from "@forkd/base";
import { AppError, toAppError } from "@forkd/contract";
import { readFile, type Context, type Runtime } from "@forkd/runtime";
import { parsePasswd, type Account } from "./accounts.ts";

/** The user of E2B's templates. A guest without it uses root. */
const defaultUser = "user";
/** How long the file counts as unchanged. An unknown name is looked up again before it is refused. */
const freshMs = 10_000;
const maxSandboxes = 1000;
const maxFileBytes = 256 * 1024;

type Accounts = ReadonlyMap<string, Account>;
type Known = { readonly accounts: Accounts; readonly readAt: number };

export class GuestUsers {
  readonly #runtime: Runtime;
  readonly #known = new LruMap<string, Known>(maxSandboxes);
  /** Many calls at the same time cost the guest one read. */
  readonly #reads = new SingleFlight<Accounts>();

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** The account of that name, or of the default user. */
  async account(id: string, name: string | undefined, context: Context): Promise<Account> {
    const known = this.#known.get(id);
    const isFresh = known && performance.now() - known.readAt < freshMs;
    const found = find(isFresh ? known.accounts : await this.#read(id, context), name);
    if (found) return found;
    const again = isFresh ? find(await this.#read(id, context), name) : undefined;
    if (again) return again;
    throw new AppError("unauthenticated", `invalid username: '${name}'`, { details: { user: name } });
  }

  #read(id: string, context: Context): Promise<Accounts> {
    const read = async (signal: AbortSignal): Promise<Accounts> => {
      const accounts = parsePasswd(await this.#passwd(id, { ...context, signal }));
      this.#known.set(id, { accounts, readAt: performance.now() });
      return accounts;
    };
    return this.#reads.run(id, read, context.signal);
  }

  /** "" if the guest has no such file. */
  async #passwd(id: string, context: Context): Promise<string> {
    const request = { id, path: "/etc/passwd", offset: 0, limit: maxFileBytes };
    const pieces: Uint8Array[] = [];
    try {
      for await (const piece of await readFile(this.#runtime, request, context)) pieces.push(piece);
    } catch (error) {
      if (toAppError(error).code !== "file_not_found") throw error;
    }
    return Buffer.concat(pieces).toString();
  }
}

function find(accounts: Accounts, name: string | undefined): Account | undefined {
  return name === undefined ? (accounts.get(defaultUser) ?? accounts.get("root")) : accounts.get(name);
}
