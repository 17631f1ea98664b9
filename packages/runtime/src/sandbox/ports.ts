/** The ports of a sandbox that are open, as its record keeps them. */
import { z } from "zod";
import { Mutex } from "@forkd/base";

export const openPortSchema = z.strictObject({
  port: z.int().min(1).max(65_535),
  public: z.boolean(),
  /** opens its host name if it is not public */
  token: z.string().regex(/^[\w-]{43}$/),
  opened_at_unix: z.number(),
  expires_at_unix: z.number().optional(),
});
export type OpenPort = z.output<typeof openPortSchema>;

export class SandboxPorts {
  #all: readonly OpenPort[];
  readonly #changes = new Mutex();

  constructor(all: readonly OpenPort[] = []) {
    this.#all = all;
  }

  /** For the record, with those whose time is over and that are not closed yet. */
  get all(): readonly OpenPort[] {
    return this.#all;
  }

  find(port: number): OpenPort | undefined {
    return this.#all.find((each) => each.port === port && !isOver(each));
  }

  /** One change at a time. `write` stores the result first, so a failure changes nothing. */
  change(
    edit: (all: readonly OpenPort[]) => readonly OpenPort[],
    write: (all: readonly OpenPort[]) => Promise<void>,
  ): Promise<void> {
    return this.#changes.run(async () => {
      const next = edit(this.#all);
      if (next === this.#all) return;
      await write(next);
      this.#all = next;
    });
  }
}

export function isOver({ expires_at_unix: at }: OpenPort): boolean {
  return at !== undefined && at <= Date.now() / 1000;
}
