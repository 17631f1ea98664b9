/** A bounded number of jobs at a time, started one after the other by a single caller. */
export class InFlight {
  readonly #most: number;
  readonly #jobs = new Set<Promise<void>>();
  #failure: { error: unknown } | undefined;

  constructor(most: number) {
    this.#most = most;
  }

  /** Starts a job as soon as there is room. Throws if an earlier one failed. */
  async start(work: () => Promise<void>): Promise<void> {
    while (this.#jobs.size >= this.#most) await Promise.race(this.#jobs);
    this.#throwFailure();
    const job = work()
      .catch((error: unknown) => {
        this.#failure ??= { error };
      })
      .finally(() => this.#jobs.delete(job));
    this.#jobs.add(job);
  }

  /** Waits for all jobs. Throws if one failed. */
  async end(): Promise<void> {
    await Promise.all(this.#jobs);
    this.#throwFailure();
  }

  #throwFailure(): void {
    if (this.#failure) throw this.#failure.error;
  }

  /** Waits for all jobs, failed or not. */
  async settle(): Promise<void> {
    await Promise.all(this.#jobs);
  }
}
