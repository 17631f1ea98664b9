/** Writes that fail: the n-th one that the program makes below a directory, at the system's own interface. */
import fs, { type PathLike } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import type { TestContext } from "node:test";

type AnyFunction = (...args: unknown[]) => Promise<unknown>;

/** Each fails before it does anything; what came before it stands. */
const calls = ["rename", "link", "mkdir", "writeFile", "copyFile", "truncate", "open"] as const;
const handleCalls = ["write", "writeFile", "appendFile", "truncate", "sync", "datasync"] as const;

export class WriteFaults {
  /** what failed last, for a message */
  last = "";
  /** nothing can be removed while this is so */
  failRemovals = false;
  readonly #root: string;
  #code = "EIO";
  readonly #handles = new WeakSet<object>();
  #left = Infinity;

  private constructor(root: string) {
    this.#root = root;
  }

  /** Until the test ends. */
  static async install(t: TestContext, root: string): Promise<WriteFaults> {
    const faults = new WriteFaults(root);
    const own = fs.promises as unknown as Record<string, AnyFunction>;
    for (const name of calls) {
      const real = own[name];
      if (!real) continue;
      own[name] = async (...args) => {
        if (name !== "open" || isWrite(args[1])) faults.#mayFail(name, args);
        const result = await real(...args);
        if (name === "open" && faults.#isBelow(args)) faults.#handles.add(result as object);
        return result;
      };
      t.after(() => void (own[name] = real));
    }
    const remove = own["rm"];
    if (remove) {
      own["rm"] = async (...args) => {
        if (faults.failRemovals && faults.#isBelow(args))
          throw Object.assign(new Error("EIO: rm"), { code: "EIO" });
        return remove(...args);
      };
      t.after(() => void (own["rm"] = remove));
    }
    syncBuiltinESMExports();
    t.after(() => syncBuiltinESMExports());
    await using any = await fs.promises.open("/dev/null");
    const prototype = Object.getPrototypeOf(any) as Record<string, AnyFunction>;
    for (const name of handleCalls) {
      const real = prototype[name];
      if (!real) continue;
      prototype[name] = async function (this: object, ...args) {
        if (faults.#handles.has(this)) faults.#mayFail(name, [root]);
        return real.apply(this, args);
      };
      t.after(() => void (prototype[name] = real));
    }
    return faults;
  }

  /** The n-th write from now on fails, and none after it. */
  failAt(n: number, code: "ENOSPC" | "EIO"): void {
    this.#left = n;
    this.#code = code;
    this.last = "";
  }

  /** Whether there was an n-th one. */
  stop(): boolean {
    this.#left = Infinity;
    return this.last !== "";
  }

  #isBelow(args: readonly unknown[]): boolean {
    const paths = args.filter((arg) => typeof arg === "string" && arg.startsWith(this.#root));
    // The store writes it in the background, at any time, and it is not needed.
    return paths.length > 0 && !paths.some((path) => String(path).includes("/verified.json"));
  }

  #mayFail(name: string, args: readonly unknown[]): void {
    if (!this.#isBelow(args) || --this.#left !== 0) return;
    this.last = `${name} ${args.filter((arg): arg is PathLike => typeof arg === "string").join(" ")}`;
    throw Object.assign(new Error(`${this.#code}: ${name}`), { code: this.#code });
  }
}

function isWrite(flags: unknown): boolean {
  return typeof flags === "string" && flags !== "r";
}
