/** What is wrong with a recipe; readRecipe() adds its path. */
import type { AppErrorOptions } from "@forkd/contract";

export class Invalid extends Error {
  readonly options: AppErrorOptions;

  constructor(message: string, options: AppErrorOptions = {}) {
    super(message);
    this.options = options;
  }
}
