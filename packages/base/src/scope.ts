/**
 * Scope: the undo steps of something being built.
 *
 * Each acquired thing pushes its undo. When building fails, disposing the scope runs the undos in reverse;
 * when it succeeds, `keep()` moves them to the scope that the finished object owns. Replaces
 * AsyncDisposableStack, which Node has since version 24.
 */
type Undo = () => PromiseLike<void> | void;

export class Scope implements AsyncDisposable {
  #undos: Undo[] = [];

  defer(undo: Undo): void {
    this.#undos.push(undo);
  }

  use<T extends AsyncDisposable>(resource: T): T {
    this.defer(() => resource[Symbol.asyncDispose]());
    return resource;
  }

  keep(): Scope {
    const kept = new Scope();
    kept.#undos = this.#undos;
    this.#undos = [];
    return kept;
  }

  /** Runs every undo even when one fails; reports all failures together. */
  async [Symbol.asyncDispose](): Promise<void> {
    const failures: unknown[] = [];
    for (let undo = this.#undos.pop(); undo !== undefined; undo = this.#undos.pop()) {
      try {
        await undo();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length === 1) throw failures[0];
    if (failures.length > 1) throw new AggregateError(failures, "Cannot release every resource");
  }
}
